package install

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/argocd-agent/argocd-agent/lab"
)

// The release workflow runs hack/pin before it packages anything.
func TestPin_EveryImageHasDigest(t *testing.T) {
	kustomize := lab.Tool(t, "kustomize")
	dir := t.TempDir()
	for _, path := range []string{"hack/pin", "Dockerfile", "install"} {
		copying := exec.CommandContext(t.Context(), "cp", "-r", "--parents", path, dir)
		copying.Dir = "../.."
		if out, err := copying.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	// It has the images of the others, and rendering takes seconds.
	if err := os.RemoveAll(filepath.Join(dir, "install", "argocd", "spoke-autonomous")); err != nil {
		t.Fatal(err)
	}
	manifest := read(t, argocdDir(t), "manifests", "install.yaml")
	overlays, err := filepath.Glob(filepath.Join(dir, "install", "argocd", "*", "kustomization.yaml"))
	if err != nil || len(overlays) == 0 {
		t.Fatalf("no overlays: %v", err)
	}
	remote := regexp.MustCompile(`https://raw\.githubusercontent\.com/\S+`)
	for _, file := range overlays {
		write(t, file, remote.ReplaceAllString(read(t, file), "install.yaml"))
		write(t, filepath.Join(filepath.Dir(file), "install.yaml"), manifest)
	}
	fake := filepath.Join(t.TempDir(), "digest")
	write(t, fake, "#!/bin/sh\nprintf 'sha256:%s\\n' \"$(printf %s \"$1\" | sha256sum | cut -c1-64)\"\n")
	if err := os.Chmod(fake, 0o700); err != nil {
		t.Fatal(err)
	}
	pin := func(image ...string) error {
		command := exec.CommandContext(t.Context(), filepath.Join(dir, "hack", "pin"), image...)
		command.Env = append(os.Environ(), "DIGEST_OF="+fake, "KUSTOMIZE="+kustomize+" build")
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	if pin("example/agent:1.2.3") == nil {
		t.Error("an image without a digest is accepted")
	}
	own := "example/agent@" + digestOf("own")
	if err := cmp.Or(pin(), pin(own)); err != nil {
		t.Fatal(err)
	}

	rendered := map[string]string{"Dockerfile": read(t, dir, "Dockerfile")}
	for _, file := range append(overlays, filepath.Join(dir, "install", "kustomize", "principal", "kustomization.yaml"), filepath.Join(dir, "install", "kustomize", "agent", "kustomization.yaml")) {
		built, refusal := run(t, kustomize, "build", filepath.Dir(file))
		if refusal != "" {
			t.Fatal(refusal)
		}
		rendered[strings.TrimPrefix(filepath.Dir(file), dir+"/")] = built
	}
	built, refusal := run(t, lab.Tool(t, "helm"), "template", filepath.Join(dir, "install", "helm", "argocd-agent"), "--kube-version", "1.34.0", "--set", "role=principal")
	if refusal != "" {
		t.Fatal(refusal)
	}
	rendered["chart"] = built
	images := regexp.MustCompile(`(?m)^(?:FROM (?:--platform=\S+ )?|[ -]*image: "?)([^\s"]+)`)
	pinned := regexp.MustCompile(`^[^@]+@sha256:[0-9a-f]{64}$`)
	for name, text := range rendered {
		found := images.FindAllStringSubmatch(text, -1)
		if len(found) == 0 {
			t.Errorf("%s has no image", name)
		}
		for _, image := range found {
			if image[1] != "scratch" && !pinned.MatchString(image[1]) {
				t.Errorf("%s: image %s has no digest", name, image[1])
			}
		}
		if project := name == "chart" || strings.HasPrefix(name, "install/kustomize"); project && !strings.Contains(text, own) {
			t.Errorf("%s does not use %s", name, own)
		}
	}
	if !strings.Contains(rendered["Dockerfile"], "golang:1.26@"+digestOf("golang:1.26")) {
		t.Errorf("the base image is not pinned to its own digest:\n%s", rendered["Dockerfile"])
	}
}

// The release workflow checks for known vulnerabilities, pins images and signs before it publishes.
func TestReleaseWorkflow_ChecksAndPinsBeforeItPublishes(t *testing.T) {
	workflow := read(t, "../../.github/workflows/release.yml")
	at := 0
	for _, step := range []string{"make lint test", "make vulncheck", "run: hack/pin\n", "make release VERSION=", `"$crane" push`, "cosign sign-blob", "gh release create"} {
		i := strings.Index(workflow[at:], step)
		if i < 0 {
			t.Fatalf("no step %q after the steps before it", step)
		}
		at += i
	}
}

func digestOf(text string) string { return fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))) }

func write(t testing.TB, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
