package ports

import (
	"net"
	"strings"
	"testing"
)

func TestPorts_TwoLabsShareNone(t *testing.T) {
	folder := t.TempDir()
	seen := map[int]bool{}
	for range 5 {
		block, err := Claim(folder)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = block.Release() })
		for range 20 {
			port, err := block.Next()
			if err != nil {
				t.Fatal(err)
			}
			if seen[port] {
				t.Fatalf("port %d was given twice", port)
			}
			seen[port] = true
		}
	}
}

func TestPorts_ReleasedBlockIsReused(t *testing.T) {
	folder := t.TempDir()
	for range 2 * blocks {
		block, err := Claim(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := block.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPorts_AllBlocksTakenIsReported(t *testing.T) {
	folder := t.TempDir()
	for range blocks {
		block, err := Claim(folder)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = block.Release() })
	}
	if _, err := Claim(folder); err == nil || !strings.Contains(err.Error(), "lab down") {
		t.Errorf("got %v", err)
	}
}

func TestPorts_OccupiedPortIsSkipped(t *testing.T) {
	block, err := Claim(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = block.Release() })
	occupied, err := block.Next()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", Address(occupied))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := Check(occupied); err == nil || !strings.Contains(err.Error(), "occupied") {
		t.Errorf("got %v", err)
	}
	block.next = occupied
	if port, err := block.Next(); err != nil || port == occupied {
		t.Errorf("got port %d, %v", port, err)
	}
}
