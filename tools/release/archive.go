package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// file is an entry of an archive. A name that ends with a slash is a directory.
type file struct {
	name    string
	mode    int64
	content []byte
}

// filesIn returns the directories and files below a directory, by name. Modes do not depend on the checkout: only whether
// a file is executable counts.
func filesIn(dir, prefix string) (files []file, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name := prefix + filepath.ToSlash(rel)
		if entry.IsDir() {
			files = append(files, file{name + "/", 0o755, nil})
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := int64(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		content, err := os.ReadFile(path)
		files = append(files, file{name, mode, content})
		return err
	})
	return files, err
}

func tarArchive(date time.Time, files ...file) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content)), ModTime: date, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if strings.HasSuffix(f.name, "/") {
			header.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buffer.Bytes(), err
}

func tarGz(date time.Time, files ...file) ([]byte, error) {
	plain, err := tarArchive(date, files...)
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	w := gzip.NewWriter(&buffer) // its header has neither a name nor a time
	if _, err := w.Write(plain); err != nil {
		return nil, err
	}
	err = w.Close()
	return buffer.Bytes(), err
}

func zipArchive(date time.Time, files ...file) ([]byte, error) {
	var buffer bytes.Buffer
	w := zip.NewWriter(&buffer)
	for _, f := range files {
		header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date}
		header.SetMode(os.FileMode(f.mode))
		part, err := w.CreateHeader(header)
		if err != nil {
			return nil, err
		}
		if _, err := part.Write(f.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return buffer.Bytes(), err
}
