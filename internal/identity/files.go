package identity

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files is a Source that reads files, and reads them again if they changed. It checks them when a handshake needs it.
type Files struct {
	paths [3]string // certificate, key, CA bundle
	log   *slog.Logger
	now   func() time.Time

	mu      sync.Mutex
	store   *Store
	states  [3]fileState
	checked time.Time
}

// fileState detects changes of a file.
type fileState struct {
	modified time.Time
	size     int64
}

// checkInterval is the minimum time between two checks of the files.
const checkInterval = time.Second

// NewFiles reads the files for the first time. If caPath is empty, the system's CAs are trusted.
func NewFiles(certPath, keyPath, caPath string, log *slog.Logger) (*Files, error) {
	return newFiles([3]string{certPath, keyPath, caPath}, log, time.Now)
}

func newFiles(paths [3]string, log *slog.Logger, now func() time.Time) (*Files, error) {
	f := &Files{paths: paths, log: log, now: now, store: NewStore("certificate files")}
	f.store.now = now
	f.checked = now()
	if _, err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// Material implements Source. If the files are invalid, it returns the last valid material.
func (f *Files) Material() (*Material, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := f.now(); now.Sub(f.checked) >= checkInterval || now.Before(f.checked) {
		f.checked = now
		before := f.store.Err()
		changed, err := f.load()
		switch {
		case err != nil && (before == nil || changed):
			f.log.Error("Failed to use certificate files", "certificate", f.paths[0], "error", err)
		case err == nil && changed:
			m, _ := f.store.Material()
			f.log.Info("Reloaded certificate files", "certificate", f.paths[0], "subject", m.Certificate.Leaf.Subject.String(), "expires", m.NotAfter())
		}
	}
	return f.store.Material()
}

// Err returns why the current files are not used, or nil.
func (f *Files) Err() error { return f.store.Err() }

// load reads the files if they changed or were invalid: a certificate may have been read before its key was in place.
func (f *Files) load() (changed bool, err error) {
	var stamps [3]fileState
	for i, path := range f.paths {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return f.missing(err)
		}
		stamps[i] = fileState{info.ModTime(), info.Size()}
	}
	changed = stamps != f.states
	if !changed && f.store.Err() == nil {
		return false, nil
	}
	var parts [3][]byte
	for i, path := range f.paths {
		if path == "" {
			continue
		}
		if parts[i], err = os.ReadFile(path); err != nil {
			return f.missing(err)
		}
		if parts[i] == nil {
			parts[i] = []byte{} // empty, rather than unchanged
		}
	}
	f.states = stamps
	if err := f.store.Update(parts[0], parts[1], parts[2]); err != nil {
		return changed, fmt.Errorf("%w (files %q)", err, f.paths)
	}
	return changed, nil
}

func (f *Files) missing(err error) (bool, error) {
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	changed := f.store.err == nil
	f.store.err = fmt.Errorf("read certificate files: %w", err)
	return changed, f.store.err
}
