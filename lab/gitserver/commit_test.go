package gitserver

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestCommit_ChangesDeletesAndBranches(t *testing.T) {
	ctx := t.Context()
	store, _ := start(t, nil)
	repo := create(t, store, "demo", RepoOptions{})
	first, err := repo.Commit(ctx, "First", map[string]string{"a.txt": "a\n\n", "dir/b.txt": "b", "dir/c.txt": ""})
	must(t, err)
	must(t, repo.Branch(ctx, "dev", DefaultBranch))
	second, err := repo.Commit(ctx, "Second", map[string]string{"a.txt": "A"}, On("dev"), Deleting("dir/b.txt"))
	must(t, err)
	must(t, repo.Tag(ctx, "v1", "dev"))

	for rev, want := range map[string][]string{"main": {"a.txt", "dir/b.txt", "dir/c.txt"}, "v1": {"a.txt", "dir/c.txt"}} {
		files, err := repo.Files(ctx, rev)
		must(t, err)
		if !slices.Equal(files, want) {
			t.Errorf("files at %s: %v, want %v", rev, files, want)
		}
	}
	if got, err := repo.File(ctx, "main", "a.txt"); err != nil || got != "a\n\n" {
		t.Errorf("a.txt is %q, %v", got, err)
	}
	if got, _ := repo.Resolve(ctx, "dev"); got != second {
		t.Errorf("dev is at %s, want %s", got, second)
	}
	if got, _ := repo.Resolve(ctx, "main"); got != first {
		t.Errorf("main is at %s, want %s", got, first)
	}
	must(t, repo.DeleteBranch(ctx, "dev"))
	must(t, repo.DeleteTag(ctx, "v1"))
	if _, err := repo.Resolve(ctx, "v1"); err == nil {
		t.Error("the deleted tag resolves")
	}
	if out, err := git(ctx, repo.Dir(), "for-each-ref", "--format=%(refname)"); err != nil || out != "refs/heads/main" {
		t.Errorf("references left: %q, %v", out, err)
	}
}

func TestCommit_RejectsInvalidChanges(t *testing.T) {
	ctx := t.Context()
	store, _ := start(t, nil)
	repo := create(t, store, "demo", RepoOptions{Sample: SamplePlain})
	for name, do := range map[string]func() error{
		"is not on the branch": func() error { _, err := repo.Commit(ctx, "x", nil, Deleting("absent")); return err },
		"Repo.Branch":          func() error { _, err := repo.Commit(ctx, "x", nil, On("absent")); return err },
		"clean relative path":  func() error { _, err := repo.Commit(ctx, "x", map[string]string{"../x": ""}); return err },
		"no commit":            func() error { return repo.Branch(ctx, "b", "absent") },
		"not a valid name":     func() error { return repo.Branch(ctx, "a..b", "main") },
		"to delete":            func() error { return repo.DeleteTag(ctx, "absent") },
		"exists already":       func() error { _, err := store.Create(ctx, "demo", RepoOptions{}); return err },
		"lower-case":           func() error { _, err := store.Create(ctx, "../x", RepoOptions{}); return err },
		"no such repository":   func() error { _, err := store.Open("absent"); return err },
		"choose one of":        func() error { _, err := store.Create(ctx, "x", RepoOptions{Sample: "absent"}); return err },
		"give its URL":         func() error { _, err := store.Create(ctx, "x", RepoOptions{Sample: SampleAppSet}); return err },
		"must not be empty":    func() error { return store.SetUser("a:b", "") },
		"context canceled":     func() error { _, err := repo.Commit(canceled(ctx), "x", nil); return err },
		"listen tcp":           func() error { _, err := Serve(store, ServerOptions{Address: "127.0.0.1:none"}); return err },
		"read absent":          func() error { _, err := repo.File(ctx, "main", "absent"); return err },
	} {
		if err := do(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want an error with %q", err, name)
		}
	}
	if got := store.Names(); !slices.Equal(got, []string{"demo"}) {
		t.Errorf("half-made repositories are left: %v", got)
	}
}

func canceled(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	return ctx
}

func TestCommit_ConcurrentCommitsAllArrive(t *testing.T) {
	store, _ := start(t, nil)
	repo := create(t, store, "demo", RepoOptions{})
	_, err := repo.Commit(t.Context(), "First", nil)
	must(t, err)
	const n = 6
	var wg sync.WaitGroup
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			_, errs[i] = repo.Commit(t.Context(), "More", map[string]string{string(rune('a' + i)): "x"})
		})
	}
	wg.Wait()
	must(t, errors.Join(errs...))
	files, err := repo.Files(t.Context(), DefaultBranch)
	must(t, err)
	if len(files) != n {
		t.Errorf("files: %v, want %d", files, n)
	}
}

func TestCommit_SameHistoryHasSameHash(t *testing.T) {
	var heads []string
	for range 2 {
		store, _ := start(t, nil)
		repo := create(t, store, "demo", RepoOptions{Sample: SampleHelm})
		sha, err := repo.Commit(t.Context(), "Change", map[string]string{"values.yaml": "replicas: 2\n"})
		must(t, err)
		heads = append(heads, sha)
	}
	if heads[0] != heads[1] {
		t.Errorf("hashes differ: %v", heads)
	}
}

func TestMissingBinary_NamesItsPackage(t *testing.T) {
	store, err := OpenStore(t.TempDir())
	must(t, err)
	t.Setenv("PATH", t.TempDir())
	_, err = store.Create(t.Context(), "demo", RepoOptions{})
	if err == nil || !strings.Contains(err.Error(), "apt-get install git") {
		t.Errorf("without git: %v", err)
	}
	_, err = NewSigner(t.Context(), "N", "n@example.com")
	if err == nil || !strings.Contains(err.Error(), "apt-get install gnupg") {
		t.Errorf("without gpg: %v", err)
	}
}
