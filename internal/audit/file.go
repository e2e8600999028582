package audit

import (
	"context"
	"fmt"
	"io"
	"os"
)

// stream writes lines to standard output.
type stream struct{ w io.Writer }

func (s *stream) write(_ context.Context, records []Record) (int, error) {
	return writeLines(s.w, records)
}

func (*stream) close(context.Context) {}

// writeLines writes each line with one call, so that lines of several processes do not mix.
func writeLines(w io.Writer, records []Record) (int, error) {
	for i, r := range records {
		if _, err := w.Write(r.line()); err != nil {
			return i, fmt.Errorf("write a line: %w", err)
		}
	}
	return len(records), nil
}

// file appends lines to a file. If another program has moved or deleted the file, for example to rotate it, it creates a new
// one.
type file struct {
	path   string
	f      *os.File // nil after a failed attempt to open it
	broken bool     // the file may end within a line
}

func newFile(path string) (*file, error) {
	s := &file{path: path}
	return s, s.open()
}

func (s *file) open() (err error) {
	s.f, err = os.OpenFile(s.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	return err
}

func (s *file) write(_ context.Context, records []Record) (int, error) {
	if s.f != nil && s.moved() {
		_ = s.f.Close()
		s.f = nil
	}
	if s.f == nil {
		if err := s.open(); err != nil {
			s.f = nil
			return 0, err
		}
	}
	if s.broken {
		if _, err := s.f.Write([]byte{'\n'}); err != nil {
			return 0, fmt.Errorf("end a line: %w", err)
		}
	}
	n, err := writeLines(s.f, records)
	s.broken = err != nil
	return n, err
}

func (s *file) moved() bool {
	there, err := os.Stat(s.path)
	if err != nil {
		return true
	}
	ours, err := s.f.Stat()
	return err != nil || !os.SameFile(there, ours)
}

func (s *file) close(context.Context) {
	if s.f != nil {
		_ = s.f.Close()
	}
}
