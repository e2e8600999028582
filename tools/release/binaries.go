package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// platform is a target of the Go compiler.
type platform struct{ os, arch string }

// platformsOf parses a list such as linux/amd64,darwin/arm64.
func platformsOf(list string) (platforms []platform, err error) {
	for name := range strings.SplitSeq(list, ",") {
		system, arch, ok := strings.Cut(name, "/")
		if !ok || system == "" || arch == "" {
			return nil, fmt.Errorf("%q is not a platform such as linux/amd64", name)
		}
		platforms = append(platforms, platform{system, arch})
	}
	return platforms, nil
}

// compile returns the bytes of a binary. It needs no C compiler and records nothing of this machine.
func (r *release) compile(ctx context.Context, command string, p platform) ([]byte, error) {
	out := filepath.Join(r.scratch, command+"-"+p.os+"-"+p.arch)
	if binary, err := os.ReadFile(out); err == nil {
		return binary, nil // argocd-agentctl is in the image and in an archive
	}
	flags := fmt.Sprintf("-s -w -buildid= -X main.version=%s -X main.commit=%s -X main.date=%s", r.version, r.commit, r.date.Format(time.RFC3339))
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", out, "./cmd/"+command)
	cmd.Dir = r.root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.os, "GOARCH="+p.arch, "GOFLAGS=-mod=readonly", "GOWORK=off", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s for %s/%s: %w\n%s", command, p.os, p.arch, err, output)
	}
	return os.ReadFile(out)
}

// buildBinaries makes one archive of argocd-agentctl per platform, with the license, and its bill of materials.
func (r *release) buildBinaries(ctx context.Context) error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	for _, p := range r.cli {
		binary, err := r.compile(ctx, "argocd-agentctl", p)
		if err != nil {
			return err
		}
		base := fmt.Sprintf("argocd-agentctl-%s-%s-%s", r.version, p.os, p.arch)
		pack, program, suffix := tarGz, "argocd-agentctl", ".tar.gz"
		if p.os == "windows" {
			pack, program, suffix = zipArchive, "argocd-agentctl.exe", ".zip"
		}
		archive, err := pack(r.date, file{program, 0o755, binary}, file{"LICENSE", 0o644, license})
		if err != nil {
			return err
		}
		if err := r.write(base+suffix, archive); err != nil {
			return err
		}
		if err := r.writeSBOM(base, binary); err != nil {
			return err
		}
	}
	return nil
}
