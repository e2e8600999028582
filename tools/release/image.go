package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

const source = "https://github.com/argocd-agent/argocd-agent"

// imagePrograms are the binaries of the image.
var imagePrograms = []string{"argocd-agent", "argocd-agentctl"}

// buildImage makes one image per platform, and one archive with all of them. An image has the two binaries, the CA
// certificates, a user, and nothing else: no shell and no package.
func (r *release) buildImage(ctx context.Context) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range r.linux {
		image, err := r.imageFor(ctx, p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}}})
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	r.digest = digest.String()
	if err := r.write("image-digest.txt", []byte(r.image+"@"+r.digest+"\n")); err != nil {
		return err
	}
	return r.writeLayout("argocd-agent-"+r.version+"-image.tar", func(l layout.Path) error {
		return l.AppendIndex(index, layout.WithAnnotations(map[string]string{
			"org.opencontainers.image.ref.name": r.version, "io.containerd.image.name": r.image + ":" + r.version,
		}))
	})
}

func (r *release) imageFor(ctx context.Context, p platform) (v1.Image, error) {
	files := []file{
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("nonroot:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("nonroot:x:65532:65532:nonroot:/:/nologin\n")},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/ssl/certs/ca-certificates.crt", 0o644, caCertificates()},
		{"usr/", 0o755, nil},
		{"usr/local/", 0o755, nil},
		{"usr/local/bin/", 0o755, nil},
	}
	for _, program := range imagePrograms {
		binary, err := r.compile(ctx, program, p)
		if err != nil {
			return nil, err
		}
		files = append(files, file{"usr/local/bin/" + program, 0o755, binary})
		if err := r.writeSBOM(fmt.Sprintf("%s-%s-image-%s-%s", program, r.version, p.os, p.arch), binary); err != nil {
			return nil, err
		}
	}
	content, err := tarArchive(r.date, files...)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image, mutate.Addendum{Layer: layer, MediaType: types.OCILayer, History: v1.History{Created: v1.Time{Time: r.date}, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	return r.configure(image, p)
}

// configure sets user, entrypoint and labels, as the Dockerfile does.
func (r *release) configure(image v1.Image, p platform) (v1.Image, error) {
	labels := map[string]string{
		"org.opencontainers.image.source":   source,
		"org.opencontainers.image.version":  r.version,
		"org.opencontainers.image.revision": r.commit,
		"org.opencontainers.image.created":  r.date.Format(time.RFC3339),
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.title":    "argocd-agent",
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, v1.Time{Time: r.date}
	config.Config = v1.Config{User: "65532:65532", Entrypoint: []string{"argocd-agent"}, Env: []string{"PATH=/usr/local/bin"}, Labels: labels}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, labels).(v1.Image), nil
}

// caCertificates returns the certificates that Mozilla trusts, in PEM. A few of them have constraints that PEM cannot
// express. They are left out.
func caCertificates() []byte {
	var all bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			all.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return all.Bytes()
}

// writeLayout writes an OCI layout as a tar file, which registry clients and container engines import.
func (r *release) writeLayout(name string, add func(layout.Path) error) error {
	dir := filepath.Join(r.scratch, name)
	l, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := add(l); err != nil {
		return err
	}
	files, err := filesIn(dir, "")
	if err != nil {
		return err
	}
	content, err := tarArchive(r.date, files...)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return r.write(name, content)
}
