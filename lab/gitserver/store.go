package gitserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// ErrExists is wrapped by Create if the name exists.
var ErrExists = errors.New("repository exists already")

// ErrNotFound is wrapped by Open if there is no such repository.
var ErrNotFound = errors.New("no such repository")

// Store is a directory of bare repositories, with their users.
type Store struct {
	dir string
	mu  sync.Mutex // serializes changes of the users file
}

// RepoOptions has the access options and the initial content of a repository.
type RepoOptions struct {
	// Private repositories need credentials for reading too.
	Private bool `json:"private"`
	// Users limits reading (of a private repository) and pushing to some users of the store. If empty, all users.
	Users []string `json:"users,omitempty"`
	// Sample is the initial content. If empty, the repository has no commit.
	Sample string `json:"-"`
	// BaseURL replaces references to repositories of this server in the files of the sample: Server.URL.
	BaseURL string `json:"-"`
}

// OpenStore opens the store in dir. It creates the directory if necessary.
func OpenStore(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("open git store %s: %w", dir, err)
	}
	if err := os.MkdirAll(abs, 0o700); err != nil {
		return nil, fmt.Errorf("open git store: %w", err)
	}
	return &Store{dir: abs}, nil
}

// Dir returns the directory of the store.
func (s *Store) Dir() string { return s.dir }

var nameRE = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]*$`)

func (s *Store) repo(name string) (*Repo, error) {
	if !nameRE.MatchString(name) || strings.HasSuffix(name, ".git") {
		return nil, fmt.Errorf("repository name %q: use lower-case letters, digits, dots and dashes, without .git", name)
	}
	return &Repo{name: name, dir: filepath.Join(s.dir, name+".git"), store: s}, nil
}

// Create creates a bare repository with default branch main, atomically.
func (s *Store) Create(ctx context.Context, name string, opts RepoOptions) (_ *Repo, err error) {
	repo, err := s.repo(name)
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp(s.dir, ".new-")
	if err != nil {
		return nil, fmt.Errorf("create repository %s: %w", name, err)
	}
	defer os.RemoveAll(tmp)
	draft := &Repo{name: name, dir: filepath.Join(tmp, "repo"), store: s}
	if err := draft.init(ctx, opts); err != nil {
		return nil, fmt.Errorf("create repository %s: %w", name, err)
	}
	// A rename to a non-empty directory fails, so only one of two creators succeeds.
	if err := os.Rename(draft.dir, repo.dir); err != nil {
		if _, statErr := os.Stat(repo.dir); statErr == nil {
			return nil, fmt.Errorf("create repository %s in %s: %w", name, s.dir, ErrExists)
		}
		return nil, fmt.Errorf("create repository %s: %w", name, err)
	}
	return repo, nil
}

// Open returns an existing repository.
func (s *Store) Open(name string) (*Repo, error) {
	repo, err := s.repo(name)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(repo.dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w: %s; the store %s has: %s", ErrNotFound, name, s.dir, strings.Join(s.Names(), ", "))
		}
		return nil, fmt.Errorf("open repository %s: %w", name, err)
	}
	return repo, nil
}

// Names returns the sorted names of the repositories.
func (s *Store) Names() []string {
	matches, _ := filepath.Glob(filepath.Join(s.dir, "*.git")) // the pattern is constant, so there is no error
	names := make([]string, 0, len(matches))
	for _, m := range matches {
		if name := strings.TrimSuffix(filepath.Base(m), ".git"); nameRE.MatchString(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// SetUser adds a user or changes a password. A running server uses it immediately.
func (s *Store) SetUser(user, password string) error {
	if user == "" || strings.Contains(user, ":") {
		return fmt.Errorf("git user %q: the name must not be empty or contain a colon", user)
	}
	return s.changeUsers(func(users map[string]string) { users[user] = password })
}

// RemoveUser removes a user. A running server applies it immediately.
func (s *Store) RemoveUser(user string) error {
	return s.changeUsers(func(users map[string]string) { delete(users, user) })
}

// Users returns the names and passwords.
func (s *Store) Users() (map[string]string, error) {
	users := map[string]string{}
	if err := readJSON(s.usersFile(), &users); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the git users: %w", err)
	}
	return users, nil
}

func (s *Store) usersFile() string { return filepath.Join(s.dir, "users.json") }

func (s *Store) changeUsers(change func(map[string]string)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	unlock, err := lockFile(filepath.Join(s.dir, "users.lock"))
	if err != nil {
		return fmt.Errorf("lock the git users: %w", err)
	}
	defer unlock()
	users, err := s.Users()
	if err != nil {
		return err
	}
	before := maps.Clone(users)
	if change(users); maps.Equal(before, users) {
		return nil
	}
	if err := writeJSON(s.usersFile(), users); err != nil {
		return fmt.Errorf("write the git users: %w", err)
	}
	return nil
}

func readJSON(file string, into any) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// writeJSON replaces a file atomically.
func writeJSON(file string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(file, append(data, '\n'))
}

func replaceFile(file string, data []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), ".new-") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
