package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Media types of charts in registries, as Helm defines them.
const (
	helmConfig = "application/vnd.cncf.helm.config.v1+json"
	helmChart  = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

var (
	chartVersion = regexp.MustCompile(`(?m)^version: .*$`)
	appVersion   = regexp.MustCompile(`(?m)^appVersion: .*$`)
)

// install returns a path below the copy of install/ that has the image of this release.
func (r *release) install(path ...string) string {
	return filepath.Join(append([]string{r.scratch, "install"}, path...)...)
}

// pinInstall copies install/ and sets version and digest of this release in the copy. It packs the copy, for users of
// kustomize.
func (r *release) pinInstall(ctx context.Context) error {
	if err := os.CopyFS(r.install(), os.DirFS(filepath.Join(r.root, "install"))); err != nil {
		return err
	}
	pin, err := os.ReadFile(filepath.Join(r.root, "hack", "pin"))
	if err != nil {
		return err
	}
	program := filepath.Join(r.scratch, "hack", "pin") // it changes the checkout that it is in
	if err := errors.Join(os.Mkdir(filepath.Dir(program), 0o755), os.WriteFile(program, pin, 0o755)); err != nil {
		return err
	}
	if output, err := exec.CommandContext(ctx, program, r.image+"@"+r.digest).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	meta, err := os.ReadFile(r.install("helm", "argocd-agent", "Chart.yaml"))
	if err != nil {
		return err
	}
	meta = chartVersion.ReplaceAll(meta, []byte("version: "+r.semver()))
	meta = appVersion.ReplaceAll(meta, []byte(`appVersion: "`+r.version+`"`))
	if err := os.WriteFile(r.install("helm", "argocd-agent", "Chart.yaml"), meta, 0o644); err != nil {
		return err
	}
	files, err := filesIn(r.install(), "install/")
	if err != nil {
		return err
	}
	packed, err := tarGz(r.date, files...)
	if err != nil {
		return err
	}
	return r.write("install-"+r.version+".tar.gz", packed)
}

// packageChart makes the chart as a file and as an OCI artifact.
func (r *release) packageChart(context.Context) error {
	files, err := filesIn(r.install("helm", "argocd-agent"), "argocd-agent/")
	if err != nil {
		return err
	}
	packed, err := tarGz(r.date, files...)
	if err != nil {
		return err
	}
	if err := r.write("argocd-agent-"+r.semver()+".tgz", packed); err != nil {
		return err
	}
	meta, err := os.ReadFile(r.install("helm", "argocd-agent", "Chart.yaml"))
	if err != nil {
		return err
	}
	config, err := yaml.YAMLToJSON(meta)
	if err != nil {
		return err
	}
	image, err := mutate.Append(mutate.MediaType(empty.Image, types.OCIManifestSchema1),
		mutate.Addendum{Layer: static.NewLayer(packed, types.MediaType(helmChart)), MediaType: types.MediaType(helmChart)})
	if err != nil {
		return err
	}
	return r.writeLayout("argocd-agent-"+r.version+"-chart.tar", func(l layout.Path) error {
		return l.AppendImage(&chartImage{Image: image, config: config}, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.semver()}))
	})
}

// chartImage is an image whose config is the metadata of a chart.
type chartImage struct {
	v1.Image
	config []byte
}

func (c *chartImage) RawConfigFile() ([]byte, error) { return c.config, nil }

func (c *chartImage) ConfigName() (v1.Hash, error) {
	hash, _, err := v1.SHA256(bytes.NewReader(c.config))
	return hash, err
}

func (c *chartImage) Manifest() (*v1.Manifest, error) {
	manifest, err := c.Image.Manifest()
	if err != nil {
		return nil, err
	}
	manifest = manifest.DeepCopy()
	hash, err := c.ConfigName()
	if err != nil {
		return nil, err
	}
	manifest.Config = v1.Descriptor{MediaType: types.MediaType(helmConfig), Size: int64(len(c.config)), Digest: hash}
	return manifest, nil
}

func (c *chartImage) RawManifest() ([]byte, error) {
	manifest, err := c.Manifest()
	if err != nil {
		return nil, err
	}
	return json.Marshal(manifest)
}

func (c *chartImage) Digest() (v1.Hash, error) {
	raw, err := c.RawManifest()
	if err != nil {
		return v1.Hash{}, err
	}
	hash, _, err := v1.SHA256(bytes.NewReader(raw))
	return hash, err
}

func (c *chartImage) Size() (int64, error) {
	raw, err := c.RawManifest()
	return int64(len(raw)), err
}

// renderManifests renders the kustomize bases, and joins the CRDs.
func (r *release) renderManifests(context.Context) error {
	for name, dir := range map[string]string{
		"install-principal.yaml": r.install("kustomize", "principal"), "install-agent.yaml": r.install("kustomize", "agent"),
	} {
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
		if err != nil {
			return fmt.Errorf("render %s: %w", name, err)
		}
		text, err := resources.AsYaml()
		if err != nil {
			return err
		}
		if err := r.write(name, text); err != nil {
			return err
		}
	}
	agents, err := os.ReadFile(r.install("crds", "agents.yaml"))
	if err != nil {
		return err
	}
	policies, err := os.ReadFile(r.install("crds", "agentpolicies.yaml"))
	if err != nil {
		return err
	}
	return r.write("crds.yaml", slices.Concat(agents, []byte("---\n"), policies))
}
