package gitserver

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed all:samples
var sampleFiles embed.FS

// The samples. CreateSamples creates a repository of the same name for each.
const (
	// SamplePlain is a Deployment, a Service and a ConfigMap at the root.
	SamplePlain = "plain"
	// SamplePrivate is the same in a private repository.
	SamplePrivate = "private"
	// SampleKustomize has a base and overlays/staging, overlays/production.
	SampleKustomize = "kustomize"
	// SampleHelm is a chart at the root, with values-production.yaml.
	SampleHelm = "helm"
	// SampleHooks has waves (hooks of every phase and sync waves), stuck (a PreSync hook that never ends) and delete (a
	// PostDelete hook).
	SampleHooks = "hooks"
	// SampleAppOfApps is a chart of child Applications. Its values have the repositories, the destination and the
	// AppProject.
	SampleAppOfApps = "app-of-apps"
	// SampleAppSet has directories (apps/*) and files (config/*.yaml) for the git generator, and ApplicationSets that
	// use them (applicationsets).
	SampleAppSet = "appset"
	// SampleNeverHealthy has degraded (a Deployment that exceeds its deadline) and progressing (a claim without a
	// volume).
	SampleNeverHealthy = "never-healthy"
	// SampleFailsToSync has rejected (by the API server), unparsable and unknown-kind.
	SampleFailsToSync = "fails-to-sync"
	// SampleSigned has plain manifests with the branches main (signed with the store's key), unsigned (an unsigned
	// commit on top) and foreign (signed with an unknown key), and the signed tag v1.0.0 on main.
	SampleSigned = "signed"
)

// Samples lists all samples.
func Samples() []string {
	return []string{
		SamplePlain, SamplePrivate, SampleKustomize, SampleHelm, SampleHooks, SampleAppOfApps,
		SampleAppSet, SampleNeverHealthy, SampleFailsToSync, SampleSigned,
	}
}

// CreateSamples creates a repository of every sample that the store does not have yet. All but SamplePrivate are
// public. baseURL is Server.URL, which some samples refer to. A test that commits should create its own repository: see
// RepoOptions.Sample.
func (s *Store) CreateSamples(ctx context.Context, baseURL string) error {
	for _, name := range Samples() {
		if _, err := s.Open(name); err == nil {
			continue
		}
		opts := RepoOptions{Private: name == SamplePrivate, Sample: name, BaseURL: baseURL}
		if _, err := s.Create(ctx, name, opts); err != nil && !errors.Is(err, ErrExists) {
			return err
		}
	}
	return nil
}

// baseMark is replaced by the URL of the server in the files of the samples.
const baseMark = "@BASE_URL@"

// sampleContent returns the files of a sample.
func sampleContent(sample, baseURL string) (map[string]string, error) {
	if !slices.Contains(Samples(), sample) {
		return nil, fmt.Errorf("there is no sample %q: choose one of %s", sample, strings.Join(Samples(), ", "))
	}
	folder := sample
	if sample == SamplePrivate {
		folder = SamplePlain
	}
	root := path.Join("samples", folder)
	files := map[string]string{}
	err := fs.WalkDir(sampleFiles, root, func(p string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := sampleFiles.ReadFile(p)
		if err != nil {
			return err
		}
		content := string(data)
		if baseURL == "" && strings.Contains(content, baseMark) {
			return fmt.Errorf("%s refers to the server: give its URL as BaseURL", p)
		}
		files[strings.TrimPrefix(p, root+"/")] = strings.ReplaceAll(content, baseMark, strings.TrimSuffix(baseURL, "/"))
		return nil
	})
	return files, err
}

// fill creates the history of a sample in an empty repository.
func (r *Repo) fill(ctx context.Context, sample, baseURL string) error {
	files, err := sampleContent(sample, baseURL)
	if err != nil {
		return err
	}
	if sample == SampleSigned {
		return r.fillSigned(ctx, files)
	}
	_, err = r.Commit(ctx, "Add the sample "+sample, files)
	return err
}

func (r *Repo) fillSigned(ctx context.Context, files map[string]string) error {
	signer, err := r.store.Signer(ctx)
	if err != nil {
		return err
	}
	stranger, err := NewSigner(ctx, "Stranger", "stranger@example.com")
	if err != nil {
		return err
	}
	if _, err := r.Commit(ctx, "Add the sample, signed", files, SignedBy(signer)); err != nil {
		return err
	}
	if err := r.Tag(ctx, "v1.0.0", DefaultBranch, SignedBy(signer)); err != nil {
		return err
	}
	for branch, opts := range map[string][]Option{"unsigned": {}, "foreign": {SignedBy(stranger)}} {
		if err := r.Branch(ctx, branch, DefaultBranch); err != nil {
			return err
		}
		change := map[string]string{"configmap.yaml": strings.ReplaceAll(files["configmap.yaml"], "hello", branch)}
		if _, err := r.Commit(ctx, "Change the greeting, "+branch, change, append(opts, On(branch))...); err != nil {
			return err
		}
	}
	return nil
}
