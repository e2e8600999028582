package install

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// releaseVersion is the version of releases in tests.
const releaseVersion = "v0.99.1-test"

// TestRelease builds a release for one platform, as users get it. `make release-check` builds all platforms.
func TestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("building a release takes half a minute, which -short leaves out")
	}
	t.Run("RefusesChangesAfterCommit", refusesChanges)
	key := filepath.Join(t.TempDir(), "key")
	out := buildRelease(t, key, "TZ=UTC")
	t.Run("SameBytesTwice", func(t *testing.T) { equalDirectories(t, out, buildRelease(t, key, "TZ=Pacific/Auckland")) })
	t.Run("HasAllArtifacts", func(t *testing.T) { hasArtifacts(t, out) })
	t.Run("ChecksumsAndSignatures", func(t *testing.T) { verified(t, out) })
	t.Run("ChartUsesImage", func(t *testing.T) { chartUsesImage(t, out) })
	t.Run("ManifestsUseImage", func(t *testing.T) { manifestsUseImage(t, out) })
	t.Run("ImageHasOnlyItsFiles", func(t *testing.T) { imageFiles(t, out) })
	t.Run("ImageRuns", func(t *testing.T) { imageRuns(t, out) })
}

func buildRelease(t *testing.T, key, variable string) string {
	t.Helper()
	out, here := t.TempDir(), "linux/"+runtime.GOARCH
	command := exec.CommandContext(t.Context(), "../../hack/release", releaseVersion, "-allow-dirty", "-image", "example/agent", "-key", key, "-platforms", here, "-cli", here, "-out", out)
	command.Env = append(os.Environ(), variable)
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return out
}

// A release of files that no commit has could not be built again.
func refusesChanges(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, args := range [][]string{{"init", "--quiet"}, {"-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--allow-empty", "--message", "x"}} {
		if _, refusal := run(t, "git", append([]string{"-C", dir}, args...)...); refusal != "" {
			t.Fatal(refusal)
		}
	}
	build := func(args ...string) string {
		out, err := exec.CommandContext(t.Context(), "../../hack/release", append([]string{releaseVersion, "-root", dir, "-out", "out"}, args...)...).CombinedOutput()
		if err == nil {
			t.Fatal("an empty repository was released")
		}
		return string(out)
	}
	write(t, filepath.Join(dir, "Dockerfile"), "")
	if out := build(); !strings.Contains(out, "the working tree has changes") || !strings.Contains(out, "Dockerfile") {
		t.Errorf("%s", out)
	}
	if out := build("-pinned"); strings.Contains(out, "the working tree has changes") {
		t.Errorf("pinned images are refused: %s", out)
	}
	write(t, filepath.Join(dir, "main.go"), "")
	if out := build("-pinned"); !strings.Contains(out, "the working tree has changes") || !strings.Contains(out, "main.go") {
		t.Errorf("%s", out)
	}
}

func equalDirectories(t *testing.T, a, b string) {
	t.Helper()
	names := fileNames(t, a)
	if other := fileNames(t, b); !slices.Equal(names, other) {
		t.Fatalf("files %v and %v", names, other)
	}
	for _, name := range names {
		if read(t, a, name) != read(t, b, name) {
			t.Errorf("%s differs", name)
		}
	}
}

func fileNames(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func hasArtifacts(t *testing.T, out string) {
	t.Helper()
	version, here := releaseVersion, "linux-"+runtime.GOARCH
	want := []string{
		"argocd-agent-" + version[1:] + ".tgz", "argocd-agent-" + version + "-chart.tar", "argocd-agent-" + version + "-image.tar",
		"argocd-agent-" + version + "-image-" + here + ".cdx.json", "argocd-agentctl-" + version + "-image-" + here + ".cdx.json",
		"argocd-agentctl-" + version + "-" + here + ".cdx.json", "argocd-agentctl-" + version + "-" + here + ".tar.gz",
		"checksums.txt", "checksums.txt.pub", "checksums.txt.sig", "crds.yaml", "image-digest.txt", "install-agent.yaml", "install-principal.yaml",
		"install-" + version + ".tar.gz", "provenance.intoto.jsonl", "provenance.json",
	}
	slices.Sort(want)
	if got := fileNames(t, out); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	var bom struct {
		BOMFormat  string
		Components []struct{ Name, Version, PURL string }
	}
	if err := json.Unmarshal([]byte(read(t, out, "argocd-agent-"+version+"-image-"+here+".cdx.json")), &bom); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, component := range bom.Components {
		names[component.Name] = component.Version
		if component.PURL != "pkg:golang/"+component.Name+"@"+component.Version {
			t.Errorf("component %+v", component)
		}
	}
	if bom.BOMFormat != "CycloneDX" || names["google.golang.org/grpc"] == "" || names["std"] != strings.TrimPrefix(runtime.Version(), "go") {
		t.Errorf("bill of materials %s: %v", bom.BOMFormat, names)
	}
}

// verified checks that the checksums cover every other file, and that checksums and provenance are signed.
func verified(t *testing.T, out string) {
	t.Helper()
	sums := map[string]string{}
	for line := range strings.Lines(read(t, out, "checksums.txt")) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	for _, name := range fileNames(t, out) {
		if got := fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, out, name)))); sums[name] != got && !strings.HasPrefix(name, "checksums.txt") {
			t.Errorf("checksum of %s is %q, want %q", name, sums[name], got)
		}
	}
	block, _ := pem.Decode([]byte(read(t, out, "checksums.txt.pub")))
	public, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	valid := func(content []byte, signature string) bool {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimSpace(signature))
		hash := sha256.Sum256(content)
		return err == nil && ecdsa.VerifyASN1(public.(*ecdsa.PublicKey), hash[:], raw)
	}
	if !valid([]byte(read(t, out, "checksums.txt")), read(t, out, "checksums.txt.sig")) {
		t.Error("the signature of the checksums is invalid")
	}
	var envelope struct {
		PayloadType string
		Payload     []byte
		Signatures  []struct{ Sig string }
	}
	if err := json.Unmarshal([]byte(read(t, out, "provenance.intoto.jsonl")), &envelope); err != nil {
		t.Fatal(err)
	}
	signed := fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(envelope.PayloadType), envelope.PayloadType, len(envelope.Payload), envelope.Payload)
	if len(envelope.Signatures) != 1 || !valid(signed, envelope.Signatures[0].Sig) || read(t, out, "provenance.json") != string(envelope.Payload)+"\n" {
		t.Error("the provenance is not signed")
	}
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
	}
	if err := json.Unmarshal(envelope.Payload, &statement); err != nil {
		t.Fatal(err)
	}
	if len(statement.Subject) != len(sums)-2 { // without itself
		t.Errorf("%d subjects for %d files", len(statement.Subject), len(sums))
	}
	for _, subject := range statement.Subject {
		if subject.Digest["sha256"] != sums[subject.Name] {
			t.Errorf("provenance of %s has another digest", subject.Name)
		}
	}
}

// imageReference is the image with its digest.
func imageReference(t *testing.T, out string) string {
	t.Helper()
	return strings.TrimSpace(read(t, out, "image-digest.txt"))
}

func chartUsesImage(t *testing.T, out string) {
	t.Helper()
	packed := filepath.Join(out, "argocd-agent-"+releaseVersion[1:]+".tgz")
	rendered, refusal := run(t, lab.Tool(t, "helm"), "template", packed, "--kube-version", "1.35.0", "--set", "role=principal")
	if refusal != "" {
		t.Fatal(refusal)
	}
	if got := deployment(t, objects(t, rendered)).Spec.Template.Spec.Containers[0].Image; got != imageReference(t, out) {
		t.Errorf("image %s, want %s", got, imageReference(t, out))
	}
	meta, refusal := run(t, lab.Tool(t, "helm"), "show", "chart", packed)
	if refusal != "" || !strings.Contains(meta, "\nversion: "+releaseVersion[1:]+"\n") || !strings.Contains(meta, "appVersion: "+releaseVersion+"\n") {
		t.Errorf("%s%s", meta, refusal)
	}
	layout := openLayout(t, filepath.Join(out, "argocd-agent-"+releaseVersion+"-chart.tar"))
	manifest := layout.manifests(t)[0]
	if manifest.Config.MediaType != "application/vnd.cncf.helm.config.v1+json" || len(manifest.Layers) != 1 ||
		manifest.Layers[0].MediaType != "application/vnd.cncf.helm.chart.content.v1.tar+gzip" || string(layout.blob(t, manifest.Layers[0])) != read(t, packed) {
		t.Errorf("the artifact is not the chart: %+v", manifest)
	}
	if config := string(layout.blob(t, manifest.Config)); !strings.Contains(config, `"version":"`+releaseVersion[1:]+`"`) {
		t.Errorf("config of the chart: %s", config)
	}
}

func manifestsUseImage(t *testing.T, out string) {
	t.Helper()
	for _, name := range []string{"install-principal.yaml", "install-agent.yaml"} {
		if got := deployment(t, objects(t, read(t, out, name))).Spec.Template.Spec.Containers[0].Image; got != imageReference(t, out) {
			t.Errorf("%s: image %s, want %s", name, got, imageReference(t, out))
		}
	}
	if crds := objects(t, read(t, out, "crds.yaml")); len(crds) != 2 {
		t.Errorf("%d CRDs, want Agent and AgentPolicy", len(crds))
	}
	install := unpack(t, gunzip(t, []byte(read(t, out, "install-"+releaseVersion+".tar.gz"))), func(*tar.Header) {})
	built, refusal := run(t, lab.Tool(t, "kustomize"), "build", filepath.Join(install, "install", "kustomize", "principal"))
	if refusal != "" || !strings.Contains(built, imageReference(t, out)) {
		t.Errorf("kustomize base without %s: %s", imageReference(t, out), refusal)
	}
}

// imageFiles checks that the image has a user without privileges and nothing that a program could be started with except
// ours: no shell, no setuid bit, no capability, no file that another user than root can change.
func imageFiles(t *testing.T, out string) {
	t.Helper()
	layout := openLayout(t, filepath.Join(out, "argocd-agent-"+releaseVersion+"-image.tar"))
	if got := layout.index.Manifests[0].Digest; !strings.HasSuffix(imageReference(t, out), "@"+got) {
		t.Errorf("the archive has image %s, want %s", got, imageReference(t, out))
	}
	for _, manifest := range layout.manifests(t) {
		config := layout.config(t, manifest)
		if config.OS != "linux" || config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"argocd-agent"}) {
			t.Errorf("configuration %+v", config)
		}
		if labels := config.Config.Labels; labels["org.opencontainers.image.version"] != releaseVersion || len(labels["org.opencontainers.image.revision"]) != 40 {
			t.Errorf("labels %v", labels)
		}
		var names []string
		root := layout.unpack(t, manifest, func(h *tar.Header) {
			names = append(names, h.Name)
			if h.Mode&^0o755 != 0 || h.Uid != 0 || h.Gid != 0 {
				t.Errorf("%s has mode %o and owner %d:%d", h.Name, h.Mode, h.Uid, h.Gid)
			}
			if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
				t.Errorf("%s is neither a file nor a directory", h.Name)
			}
			for record := range h.PAXRecords {
				if strings.Contains(record, "xattr") {
					t.Errorf("%s has %s", h.Name, record)
				}
			}
		})
		if want := []string{"etc/", "etc/group", "etc/passwd", "etc/ssl/", "etc/ssl/certs/", "etc/ssl/certs/ca-certificates.crt",
			"usr/", "usr/local/", "usr/local/bin/", "usr/local/bin/argocd-agent", "usr/local/bin/argocd-agentctl"}; !slices.Equal(names, want) {
			t.Errorf("files %q, want %q", names, want)
		}
		if pool := x509.NewCertPool(); !pool.AppendCertsFromPEM([]byte(read(t, root, "etc/ssl/certs/ca-certificates.crt"))) {
			t.Error("no CA certificates")
		}
	}
}

// descriptor refers to a blob of an OCI layout.
type descriptor struct {
	MediaType, Digest string
	Size              int64
}

type ociManifest struct {
	Config descriptor
	Layers []descriptor
}

type imageConfig struct {
	OS     string
	Config struct {
		User            string
		Entrypoint, Env []string
		Labels          map[string]string
	}
}

// ociLayout is an unpacked OCI archive.
type ociLayout struct {
	dir   string
	index struct{ Manifests []descriptor }
}

func openLayout(t *testing.T, archive string) *ociLayout {
	t.Helper()
	l := &ociLayout{dir: unpack(t, []byte(read(t, archive)), func(*tar.Header) {})}
	if read(t, l.dir, "oci-layout") == "" {
		t.Fatal("no file oci-layout")
	}
	parse(t, []byte(read(t, l.dir, "index.json")), &l.index)
	if len(l.index.Manifests) != 1 {
		t.Fatalf("%d entries in %s", len(l.index.Manifests), archive)
	}
	return l
}

// blob returns a blob whose digest and size are right.
func (l *ociLayout) blob(t *testing.T, d descriptor) []byte {
	t.Helper()
	content := []byte(read(t, l.dir, "blobs", "sha256", strings.TrimPrefix(d.Digest, "sha256:")))
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(content)); got != d.Digest || int64(len(content)) != d.Size {
		t.Fatalf("blob %s has digest %s and %d bytes, want %d", d.Digest, got, len(content), d.Size)
	}
	return content
}

// manifests returns the manifests of the layout, one per platform.
func (l *ociLayout) manifests(t *testing.T) (manifests []ociManifest) {
	t.Helper()
	all := l.index.Manifests
	if all[0].MediaType == "application/vnd.oci.image.index.v1+json" {
		var index struct{ Manifests []descriptor }
		parse(t, l.blob(t, all[0]), &index)
		all = index.Manifests
	}
	for _, d := range all {
		var manifest ociManifest
		parse(t, l.blob(t, d), &manifest)
		manifests = append(manifests, manifest)
	}
	if len(manifests) == 0 {
		t.Fatal("no manifests")
	}
	return manifests
}

func (l *ociLayout) config(t *testing.T, manifest ociManifest) (config imageConfig) {
	t.Helper()
	parse(t, l.blob(t, manifest.Config), &config)
	return config
}

// unpack returns the root file system of an image.
func (l *ociLayout) unpack(t *testing.T, manifest ociManifest, look func(*tar.Header)) string {
	t.Helper()
	if len(manifest.Layers) != 1 {
		t.Fatalf("%d layers", len(manifest.Layers))
	}
	return unpack(t, gunzip(t, l.blob(t, manifest.Layers[0])), look)
}

func parse(t *testing.T, content []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatalf("%v in %s", err, content)
	}
}

func gunzip(t *testing.T, content []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

// unpack unpacks a tar file into a directory of its own.
func unpack(t *testing.T, content []byte, look func(*tar.Header)) string {
	t.Helper()
	dir := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(content)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		look(header)
		if !filepath.IsLocal(header.Name) {
			t.Fatalf("%s is outside of the archive", header.Name)
		}
		path := filepath.Join(dir, header.Name)
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			var data []byte
			if data, err = io.ReadAll(r); err == nil {
				err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, data, os.FileMode(header.Mode)))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
