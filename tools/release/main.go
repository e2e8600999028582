// Command release builds everything that users download, without a container engine: binaries of argocd-agentctl, images
// for four architectures, the Helm chart as an OCI artifact, install manifests, software bills of materials, checksums,
// the provenance and signatures.
//
// Two runs for one commit, one version and one key give the same bytes. Nothing in the artifacts depends on the machine,
// the directory or the time: times are those of the commit.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// release is one run.
type release struct {
	root    string // of the repository
	out     string // directory of the artifacts
	scratch string // temporary directory
	version string // with a v
	image   string // repository of the image, without a tag
	key     string // PEM file with an ECDSA key; if empty, nothing is signed
	commit  string
	date    time.Time // of the commit
	pinned  bool      // the images of the overlays have digests that the commit does not have
	cli     []platform
	linux   []platform // of the image
	digest  string     // of the image index, when it is built
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

var versionPattern = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func run(ctx context.Context, args []string) (err error) {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	r := &release{}
	var platforms, cli string
	var dirty bool
	flags.StringVar(&r.root, "root", "../..", "root `directory` of the repository")
	flags.StringVar(&r.out, "out", "dist/release", "`directory` of the artifacts, relative to the root; it is replaced")
	flags.StringVar(&r.version, "version", "", "`version` of the release, such as v0.2.0")
	flags.StringVar(&r.image, "image", "argocd-agent/argocd-agent", "`repository` of the image in manifests and chart")
	flags.StringVar(&r.key, "key", "", "PEM `file` with an ECDSA P-256 key for signatures, relative to the root; it is created if missing. If unset, nothing is signed")
	flags.StringVar(&platforms, "platforms", "linux/amd64,linux/arm64,linux/ppc64le,linux/s390x", "`platforms` of the image")
	flags.StringVar(&cli, "cli", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "`platforms` of argocd-agentctl")
	flags.BoolVar(&r.pinned, "pinned", false, "permit the changes that hack/pin makes: digests in Dockerfile and overlays")
	flags.BoolVar(&dirty, "allow-dirty", false, "build although the working tree has changes; for tests")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !versionPattern.MatchString(r.version) {
		return fmt.Errorf("-version must look like v0.2.0, not %q", r.version)
	}
	if r.linux, err = platformsOf(platforms); err != nil {
		return err
	}
	if r.cli, err = platformsOf(cli); err != nil {
		return err
	}
	if err := r.locate(ctx, dirty); err != nil {
		return err
	}
	if r.scratch, err = os.MkdirTemp("", "argocd-agent-release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.scratch)) }()
	return r.build(ctx)
}

// build makes the artifacts. The image is first, because chart and manifests have its digest.
func (r *release) build(ctx context.Context) error {
	if err := errors.Join(os.RemoveAll(r.out), os.MkdirAll(r.out, 0o755)); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"image", r.buildImage},
		{"binaries", r.buildBinaries},
		{"pin", r.pinInstall},
		{"chart", r.packageChart},
		{"manifests", r.renderManifests},
		{"provenance", r.writeProvenance},
		{"checksums", r.writeChecksums},
	} {
		start := time.Now()
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
		fmt.Printf("%-11s %6.1f s\n", step.name, time.Since(start).Seconds())
	}
	return nil
}

// locate finds the commit that is released.
func (r *release) locate(ctx context.Context, dirty bool) error {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return err
	}
	r.root, r.out = root, below(root, r.out)
	if r.key != "" {
		r.key = below(root, r.key)
	}
	if r.out == root || strings.HasPrefix(root, r.out+string(filepath.Separator)) {
		return errors.New("-out must not contain the repository")
	}
	status := []string{"status", "--porcelain", "--", "."}
	if r.pinned {
		status = append(status, ":!Dockerfile", ":!install/argocd/*/kustomization.yaml")
	}
	changes, err := r.git(ctx, status...)
	if err != nil {
		return err
	}
	if changes != "" && !dirty {
		return fmt.Errorf("the working tree has changes: commit them first\n%s", changes)
	}
	line, err := r.git(ctx, "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	hash, seconds, _ := strings.Cut(line, " ")
	unix, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("read the date of the commit: %w", err)
	}
	r.commit, r.date = hash, time.Unix(unix, 0).UTC()
	return nil
}

func below(root, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(root, path)
}

func (r *release) git(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "git", append([]string{"-C", r.root}, args...)...).Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w", args[0], err)
	}
	return strings.TrimSpace(string(out)), nil
}

// artifact returns the path of an artifact.
func (r *release) artifact(name string) string { return filepath.Join(r.out, name) }

func (r *release) write(name string, content []byte) error {
	return os.WriteFile(r.artifact(name), content, 0o644)
}

// artifacts returns the names of the artifacts so far.
func (r *release) artifacts() ([]string, error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	slices.Sort(names)
	return names, nil
}

// semver is the version without the v, which charts have.
func (r *release) semver() string { return strings.TrimPrefix(r.version, "v") }
