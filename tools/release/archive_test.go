package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"testing"
	"time"
)

var (
	testDate  = time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	testFiles = []file{{"argocd-agentctl.exe", 0o755, []byte("binary")}, {"LICENSE", 0o644, []byte("text")}}
)

// TestRelease in test/install checks the archives of Linux. Windows has zip files.
func TestZipArchive_HasNamesModesAndDates(t *testing.T) {
	packed, err := zipArchive(testDate, testFiles...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.File) != len(testFiles) {
		t.Fatalf("%d files", len(r.File))
	}
	for i, want := range testFiles {
		got := r.File[i]
		if got.Name != want.name || got.Mode() != os.FileMode(want.mode) || !got.Modified.Equal(testDate) {
			t.Errorf("%s %v %v, want %+v", got.Name, got.Mode(), got.Modified, want)
		}
		content, err := got.Open()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(content); err != nil || !bytes.Equal(text, want.content) {
			t.Errorf("%s has %q: %v", got.Name, text, err)
		}
	}
	if again, err := zipArchive(testDate, testFiles...); err != nil || !bytes.Equal(again, packed) {
		t.Errorf("a second archive differs: %v", err)
	}
}

func TestTarGz_HasNoOwnerAndNoTimeOfTheBuild(t *testing.T) {
	packed, err := tarGz(testDate, testFiles...)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	if !r.ModTime.IsZero() || r.Name != "" {
		t.Errorf("gzip header %+v", r.Header)
	}
	header, err := tar.NewReader(r).Next()
	if err != nil || !header.ModTime.Equal(testDate) || header.Uid != 0 || header.Uname != "" || header.Mode != 0o755 {
		t.Errorf("%+v: %v", header, err)
	}
}

func TestRun_RefusesVersionsThatAreNotSemantic(t *testing.T) {
	for _, version := range []string{"", "0.2.0", "v0.2", "latest", "v0.2.0+x; rm"} {
		if err := run(t.Context(), []string{"-version", version}); err == nil {
			t.Errorf("%q is accepted", version)
		}
	}
}
