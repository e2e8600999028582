package gitserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// DefaultBranch is the branch of HEAD in every repository.
const DefaultBranch = "main"

// Repo is one bare repository. Its methods can be called concurrently, also from several processes and during pushes.
type Repo struct {
	name  string
	dir   string
	store *Store
}

// Name returns the name of the repository in the store, without ".git".
func (r *Repo) Name() string { return r.name }

// Dir returns the directory of the bare repository.
func (r *Repo) Dir() string { return r.dir }

// init creates the bare repository at r.dir.
func (r *Repo) init(ctx context.Context, opts RepoOptions) error {
	if _, err := gitInput(ctx, r.dir, "", nil, "init", "--quiet", "--bare", "--initial-branch", DefaultBranch); err != nil {
		return err
	}
	// No maintenance process may outlive its request. Commit prepares commits in refs/lab before it moves them to a
	// branch.
	config := "[gc]\n\tauto = 0\n[receive]\n\tautogc = false\n[transfer]\n\thideRefs = refs/lab\n" +
		"[uploadpack]\n\tallowAnySHA1InWant = true\n\tallowFilter = true\n"
	f, err := os.OpenFile(filepath.Join(r.dir, "config"), os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(config)
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := writeJSON(r.accessFile(), opts); err != nil {
		return err
	}
	if opts.Sample == "" {
		return nil
	}
	return r.fill(ctx, opts.Sample, opts.BaseURL)
}

func (r *Repo) accessFile() string { return filepath.Join(r.dir, "access.json") }

// Access returns the access options of the repository.
func (r *Repo) Access() (RepoOptions, error) {
	var opts RepoOptions
	if err := readJSON(r.accessFile(), &opts); err != nil {
		return opts, fmt.Errorf("read the access settings of repository %s: %w", r.name, err)
	}
	return opts, nil
}

// SetAccess changes the access options of the repository. A running server uses them immediately. Sample and BaseURL
// are ignored.
func (r *Repo) SetAccess(opts RepoOptions) error {
	if err := writeJSON(r.accessFile(), opts); err != nil {
		return fmt.Errorf("write the access settings of repository %s: %w", r.name, err)
	}
	return nil
}

// Remove deletes the repository.
func (r *Repo) Remove() error {
	// Rename first, so that the server never finds a part of a repository.
	tmp, err := os.MkdirTemp(r.store.dir, ".old-")
	if err != nil {
		return fmt.Errorf("remove repository %s: %w", r.name, err)
	}
	defer os.RemoveAll(tmp)
	if err := os.Rename(r.dir, filepath.Join(tmp, "repo")); err != nil {
		return fmt.Errorf("remove repository %s: %w", r.name, err)
	}
	return nil
}

// Resolve returns the commit of a branch, a tag or a hash.
func (r *Repo) Resolve(ctx context.Context, rev string) (string, error) {
	sha, err := git(ctx, r.dir, "rev-parse", "--verify", "--quiet", "--end-of-options", rev+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("repository %s has no commit %q: %w", r.name, rev, err)
	}
	return sha, nil
}

// File returns the content of a file at a branch, a tag or a commit.
func (r *Repo) File(ctx context.Context, rev, path string) (string, error) {
	args := []string{"--git-dir", r.dir, "cat-file", "blob", rev + ":" + path}
	content, err := command{program: "git", args: args}.run(ctx)
	if err != nil {
		return "", fmt.Errorf("read %s at %s in repository %s: %w", path, rev, r.name, err)
	}
	return content, nil
}

// Files returns all paths at a branch, a tag or a commit.
func (r *Repo) Files(ctx context.Context, rev string) ([]string, error) {
	out, err := git(ctx, r.dir, "ls-tree", "-r", "-z", "--name-only", "--end-of-options", rev)
	if err != nil {
		return nil, fmt.Errorf("list files at %s in repository %s: %w", rev, r.name, err)
	}
	return splitNUL(out), nil
}

// Branch creates a branch at from, or moves an existing one there.
func (r *Repo) Branch(ctx context.Context, name, from string) error {
	sha, err := r.Resolve(ctx, from)
	if err != nil {
		return fmt.Errorf("create branch %s: %w", name, err)
	}
	return r.updateRef(ctx, "refs/heads/"+name, sha)
}

// DeleteBranch removes a branch.
func (r *Repo) DeleteBranch(ctx context.Context, name string) error {
	return r.deleteRef(ctx, "refs/heads/"+name)
}

// Tag creates a tag at from, or moves an existing one there. Without options it is a lightweight tag. SignedBy makes it
// annotated and signed.
func (r *Repo) Tag(ctx context.Context, name, from string, opts ...Option) error {
	sha, err := r.Resolve(ctx, from)
	if err != nil {
		return fmt.Errorf("create tag %s: %w", name, err)
	}
	o := apply(opts)
	if o.signer == nil {
		return r.updateRef(ctx, "refs/tags/"+name, sha)
	}
	seconds, err := r.commitTime(ctx, sha)
	if err != nil {
		return fmt.Errorf("create tag %s: %w", name, err)
	}
	err = o.signer.use(ctx, func(env []string) error {
		_, err := gitInput(ctx, r.dir, "", append(env, identity(seconds)...),
			"tag", "--force", "--local-user", o.signer.fingerprint, "--message", name, "--", name, sha)
		return err
	})
	if err != nil {
		return fmt.Errorf("create signed tag %s in repository %s: %w", name, r.name, err)
	}
	return nil
}

// DeleteTag removes a tag.
func (r *Repo) DeleteTag(ctx context.Context, name string) error {
	return r.deleteRef(ctx, "refs/tags/"+name)
}

func (r *Repo) updateRef(ctx context.Context, ref, sha string) error {
	if _, err := git(ctx, r.dir, "check-ref-format", ref); err != nil {
		return fmt.Errorf("%s is not a valid name for a branch or tag: %w", ref, err)
	}
	if _, err := git(ctx, r.dir, "update-ref", ref, sha); err != nil {
		return fmt.Errorf("set %s in repository %s: %w", ref, r.name, err)
	}
	return nil
}

func (r *Repo) deleteRef(ctx context.Context, ref string) error {
	if _, err := git(ctx, r.dir, "show-ref", "--verify", "--quiet", ref); err != nil {
		return fmt.Errorf("repository %s has no %s to delete: %w", r.name, ref, err)
	}
	if _, err := git(ctx, r.dir, "update-ref", "-d", ref); err != nil {
		return fmt.Errorf("delete %s in repository %s: %w", ref, r.name, err)
	}
	return nil
}

func splitNUL(s string) []string {
	s = strings.TrimRight(s, "\x00")
	if s == "" {
		return nil
	}
	return strings.Split(s, "\x00")
}
