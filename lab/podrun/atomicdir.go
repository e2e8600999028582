package podrun

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// file is the content of one path in a volume.
type file struct {
	data string
	mode fs.FileMode
}

// The link that is switched atomically, and the prefix of the directories behind it.
const (
	dataLink   = "..data"
	versionDir = "..version-"
)

// writeVolume makes dir contain exactly files (relative path to content), atomically for a reader: every name is a link
// through ..data, which is switched to a new directory. It reports whether anything changed.
func writeVolume(dir string, files map[string]file) (bool, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, err
	}
	old, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if old != "" {
		same, err := holds(filepath.Join(dir, old), files)
		if same || err != nil {
			return false, err
		}
	}
	version, err := os.MkdirTemp(dir, versionDir)
	if err != nil {
		return false, err
	}
	if err := errors.Join(os.Chmod(version, 0o755), fill(version, files)); err != nil {
		return false, errors.Join(err, os.RemoveAll(version))
	}
	if err := replaceLink(filepath.Base(version), filepath.Join(dir, dataLink)); err != nil {
		return false, errors.Join(err, os.RemoveAll(version))
	}
	if err := linkNames(dir, files); err != nil {
		return true, err
	}
	if old != "" {
		return true, os.RemoveAll(filepath.Join(dir, old))
	}
	return true, nil
}

func fill(dir string, files map[string]file) error {
	for name, f := range files {
		if !filepath.IsLocal(name) || strings.HasPrefix(name, "..") {
			return fmt.Errorf("%q cannot be a file in a volume", name)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.data), f.mode); err != nil {
			return err
		}
		if err := os.Chmod(path, f.mode); err != nil { // independent of the umask
			return err
		}
	}
	return nil
}

// holds reports whether dir has exactly these files.
func holds(dir string, files map[string]file) (bool, error) {
	found := map[string]file{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		found[name] = file{data: string(data), mode: info.Mode().Perm()}
		return err
	})
	return maps.Equal(found, files), err
}

// linkNames creates the links for readers, and deletes old ones.
func linkNames(dir string, files map[string]file) error {
	var want []string
	for name := range files {
		top, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		want = append(want, top)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if name := entry.Name(); !strings.HasPrefix(name, "..") && !slices.Contains(want, name) {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	for _, name := range want {
		if err := replaceLink(filepath.Join(dataLink, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// replaceLink creates or changes a symbolic link atomically.
func replaceLink(target, link string) error {
	if now, err := os.Readlink(link); err == nil && now == target {
		return nil
	}
	tmp := filepath.Join(filepath.Dir(link), "..new-link")
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(target, tmp); err != nil {
		return err
	}
	return os.Rename(tmp, link)
}
