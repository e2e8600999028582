package gitserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Author of the commits, and date of the first commit of a repository. Each later commit is one minute younger than its
// parent.
const (
	authorName  = "Lab"
	authorEmail = "lab@example.com"
	commitStep  = time.Minute
)

var firstCommit = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// Option is an option of Commit or Tag.
type Option func(*options)

type options struct {
	branch string
	remove []string
	signer *Signer
}

func apply(opts []Option) options {
	o := options{branch: DefaultBranch}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// On selects a branch other than main. The branch must exist (see Repo.Branch), except for the first commit of a
// repository.
func On(branch string) Option { return func(o *options) { o.branch = branch } }

// Deleting deletes files, or directories with their content.
func Deleting(paths ...string) Option {
	return func(o *options) { o.remove = append(o.remove, paths...) }
}

// SignedBy signs the commit or tag.
func SignedBy(s *Signer) Option { return func(o *options) { o.signer = s } }

// Commit writes files (path to content) on top of the branch main, or the branch of On, and returns the hash of the new
// commit. Other files stay unchanged. A commit without a change is permitted.
func (r *Repo) Commit(ctx context.Context, message string, files map[string]string, opts ...Option) (string, error) {
	o := apply(opts)
	sha, err := r.commit(ctx, message, files, o)
	if err != nil {
		return "", fmt.Errorf("commit to %s of repository %s: %w", o.branch, r.name, err)
	}
	return sha, nil
}

// errMoved means that another process changed the branch.
var errMoved = errors.New("the branch moved while the commit was made")

func (r *Repo) commit(ctx context.Context, message string, files map[string]string, o options) (string, error) {
	for _, p := range slices.Concat(slices.Collect(maps.Keys(files)), o.remove) {
		if err := checkPath(p); err != nil {
			return "", err
		}
	}
	message = strings.TrimRight(message, "\n") + "\n"
	unlock, err := lockFile(filepath.Join(r.dir, "lab.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	// The lock excludes other commits, but not a push. After a push, start again from the pushed commit.
	for {
		sha, err := r.tryCommit(ctx, message, files, o)
		if !errors.Is(err, errMoved) || ctx.Err() != nil {
			return sha, err
		}
	}
}

func (r *Repo) tryCommit(ctx context.Context, message string, files map[string]string, o options) (string, error) {
	parent, err := r.branchTip(ctx, o.branch)
	if err != nil {
		return "", err
	}
	seconds := firstCommit.Unix()
	if parent != "" {
		if seconds, err = r.commitTime(ctx, parent); err != nil {
			return "", err
		}
		seconds += int64(commitStep / time.Second)
	}
	for _, p := range o.remove {
		if parent == "" {
			return "", fmt.Errorf("cannot delete %s: the repository is empty", p)
		}
		if _, err := git(ctx, r.dir, "cat-file", "-e", parent+":"+p); err != nil {
			return "", fmt.Errorf("cannot delete %s: it is not on the branch: %w", p, err)
		}
	}
	draft := "refs/lab/" + rand.Text()
	sha, err := gitInput(ctx, r.dir, importStream(draft, parent, message, seconds, files, o.remove), nil, "fast-import", "--quiet")
	if err != nil {
		return "", err
	}
	drafted := sha
	if o.signer != nil {
		if sha, err = r.sign(ctx, o.signer, drafted, parent, message, seconds); err != nil {
			_, cleanErr := git(ctx, r.dir, "update-ref", "-d", draft)
			return "", errors.Join(err, cleanErr)
		}
	}
	branch := "refs/heads/" + o.branch
	old := parent
	if old == "" {
		old = strings.Repeat("0", len(sha))
	}
	if _, err := git(ctx, r.dir, "update-ref", branch, sha, old); err != nil {
		if now, _ := r.branchTip(ctx, o.branch); now != parent {
			err = errMoved
		}
		_, cleanErr := git(ctx, r.dir, "update-ref", "-d", draft)
		return "", errors.Join(err, cleanErr)
	}
	if _, err := git(ctx, r.dir, "update-ref", "-d", draft); err != nil {
		return "", err
	}
	return sha, nil
}

// sign creates a signed copy of the commit.
func (r *Repo) sign(ctx context.Context, signer *Signer, drafted, parent, message string, seconds int64) (sha string, err error) {
	err = signer.use(ctx, func(env []string) error {
		args := []string{"commit-tree", "--gpg-sign=" + signer.fingerprint, drafted + "^{tree}"}
		if parent != "" {
			args = append(args, "-p", parent)
		}
		sha, err = gitInput(ctx, r.dir, message, append(env, identity(seconds)...), args...)
		return err
	})
	return sha, err
}

// branchTip returns the commit of the branch, or "" if the repository has no branch.
func (r *Repo) branchTip(ctx context.Context, branch string) (string, error) {
	out, err := git(ctx, r.dir, "for-each-ref", "--format=%(refname) %(objectname)", "refs/heads")
	if err != nil {
		return "", err
	}
	var names []string
	for line := range strings.Lines(out) {
		ref, sha, _ := strings.Cut(strings.TrimSpace(line), " ")
		if ref == "refs/heads/"+branch {
			return sha, nil
		}
		names = append(names, strings.TrimPrefix(ref, "refs/heads/"))
	}
	if len(names) == 0 {
		return "", nil
	}
	return "", fmt.Errorf("there is no branch %q, only %s: make it with Repo.Branch first", branch, strings.Join(names, ", "))
}

func (r *Repo) commitTime(ctx context.Context, sha string) (int64, error) {
	out, err := git(ctx, r.dir, "show", "--no-patch", "--no-show-signature", "--format=%ct", sha)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(out, 10, 64)
}

// importStream returns the input of git fast-import: one commit on the reference ref, whose hash is then printed.
func importStream(ref, parent, message string, seconds int64, files map[string]string, remove []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "commit %s\nmark :1\ncommitter %s <%s> %d +0000\n", ref, authorName, authorEmail, seconds)
	data(&b, message)
	if parent != "" {
		fmt.Fprintf(&b, "from %s\n", parent)
	}
	for _, p := range remove {
		fmt.Fprintf(&b, "D %s\n", p)
	}
	for _, p := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&b, "M 100644 inline %s\n", p)
		data(&b, files[p])
	}
	b.WriteString("get-mark :1\n")
	return b.String()
}

func data(b *strings.Builder, s string) { fmt.Fprintf(b, "data %d\n%s\n", len(s), s) }

// identity returns the environment that sets author, committer and both dates.
func identity(seconds int64) []string {
	date := fmt.Sprintf("%d +0000", seconds)
	return []string{
		"GIT_AUTHOR_NAME=" + authorName, "GIT_AUTHOR_EMAIL=" + authorEmail, "GIT_AUTHOR_DATE=" + date,
		"GIT_COMMITTER_NAME=" + authorName, "GIT_COMMITTER_EMAIL=" + authorEmail, "GIT_COMMITTER_DATE=" + date,
	}
}

func checkPath(p string) error {
	if p == "" || p != path.Clean(p) || path.IsAbs(p) || strings.HasPrefix(p, "../") || p == "." || p == ".." ||
		strings.ContainsAny(p, "\"\n\x00\\") {
		return fmt.Errorf("path %q: use a clean relative path with forward slashes", p)
	}
	return nil
}
