package connlistener

import (
	"context"
	"errors"
	"net"
	"testing"
)

func TestListener_PassesConnectionsUntilItIsClosed(t *testing.T) {
	l := New()
	ours, theirs := net.Pipe()
	defer ours.Close()
	defer theirs.Close()
	offered := make(chan error, 1)
	go func() { offered <- l.Offer(t.Context(), ours) }()
	if conn, err := l.Accept(); err != nil || conn != ours {
		t.Errorf("Accept: %v, %v", conn, err)
	}
	if err := <-offered; err != nil {
		t.Errorf("Offer: %v", err)
	}
	for range 2 {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
	if err := l.Offer(t.Context(), ours); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Offer after Close: %v", err)
	}
}

func TestOffer_EndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	if err := New().Offer(ctx, nil); !errors.Is(err, why) {
		t.Errorf("Offer: %v, want %v", err, why)
	}
}
