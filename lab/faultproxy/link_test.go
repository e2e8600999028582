package faultproxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

func TestLink_ForwardsAndCounts(t *testing.T) {
	link := newLink(t, echo(t))
	conn := dial(t, link)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var got []byte
	var readErr error
	var wg sync.WaitGroup
	wg.Go(func() { got, readErr = io.ReadAll(conn) })
	_, err := conn.Write(big)
	must(t, err)
	must(t, conn.CloseWrite()) // the end is forwarded too
	wg.Wait()
	must(t, readErr)
	if !bytes.Equal(got, big) {
		t.Errorf("%d bytes came back, %d were sent", len(got), len(big))
	}
	eventually(t, "the connection is closed", func() bool { return link.Counters().Open == 0 })
	if want := (Counters{Accepted: 1, Up: int64(len(big)), Down: int64(len(big))}); link.Counters() != want {
		t.Errorf("counters %+v, want %+v", link.Counters(), want)
	}
}

func TestLink_RefusingCutResetsAndRefuses(t *testing.T) {
	link := newLink(t, echo(t))
	conn := dial(t, link)
	say(t, conn, "hello")
	hear(t, conn, "hello")
	must(t, link.Cut(Refuse))
	wantReset(t, conn)
	if _, err := net.DialTimeout("tcp", link.Addr(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, want refused", err)
	}
	if other, err := net.Listen("tcp", "127.0.0.1:0"); err == nil {
		if other.Addr().String() == link.Addr() {
			t.Error("the port was given away")
		}
		_ = other.Close()
	}
	must(t, link.Restore())
	must(t, link.Restore()) // a second call has no effect
	conn = dial(t, link)
	say(t, conn, "again")
	hear(t, conn, "again")
}

func TestLink_BlackholeIsSilentAndLosesNothing(t *testing.T) {
	link := newLink(t, echo(t))
	old := dial(t, link)
	say(t, old, "before")
	hear(t, old, "before")
	must(t, link.Cut(Blackhole))
	say(t, old, "during")
	fresh := dial(t, link)
	say(t, fresh, "fresh")
	silence(t, fresh)
	silence(t, old)
	must(t, link.Restore())
	hear(t, old, "during")
	hear(t, fresh, "fresh")
}

func TestLink_CutModesFollowEachOther(t *testing.T) {
	link := newLink(t, echo(t))
	must(t, link.Cut(Refuse))
	must(t, link.Cut(Blackhole))
	conn := dial(t, link)
	must(t, link.Cut(Refuse))
	wantReset(t, conn)
	must(t, link.Restore())
	conn = dial(t, link)
	say(t, conn, "hello")
	hear(t, conn, "hello")
}

func TestLink_HalfOpenAffectsOnlyOldConnections(t *testing.T) {
	link := newLink(t, echo(t))
	dead := dial(t, link)
	say(t, dead, "hello")
	hear(t, dead, "hello")
	link.HalfOpen()
	say(t, dead, "anybody?")
	live := dial(t, link)
	say(t, live, "hello")
	hear(t, live, "hello")
	must(t, link.Restore()) // does not restore the frozen connection
	silence(t, dead)
	if open := link.Counters().Open; open != 2 {
		t.Errorf("%d connections are open, want 2", open)
	}
	link.Reset()
	wantReset(t, dead)
	wantReset(t, live)
}

func TestLink_ResetReachesBothSides(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	link := newLink(t, listener.Addr().String())
	client := dial(t, link)
	server, err := listener.Accept()
	must(t, err)
	defer server.Close()
	must(t, server.SetDeadline(time.Now().Add(patience)))
	say(t, client, "x")
	hear(t, server, "x")
	link.Reset()
	wantReset(t, client)
	wantReset(t, server)
	eventually(t, "no connection is open", func() bool { return link.Counters().Open == 0 })
}

func TestLink_ForwardsResetOfOneSide(t *testing.T) {
	listener, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	must(t, err)
	defer listener.Close()
	link := newLink(t, listener.Addr().String())
	client := dial(t, link)
	server, err := listener.AcceptTCP()
	must(t, err)
	say(t, client, "x")
	hear(t, server, "x")
	abort(server)
	wantReset(t, client)
}

func TestLink_DelayKeepsOrderAndThroughput(t *testing.T) {
	const delay = 40 * time.Millisecond
	link := newLink(t, echo(t))
	link.Delay(delay, 10*time.Millisecond)
	conn := dial(t, link)
	start := time.Now()
	var want strings.Builder
	for range 200 { // sequentially they would take at least 16 seconds
		say(t, conn, "0123456789")
		want.WriteString("0123456789")
	}
	hear(t, conn, want.String())
	if took := time.Since(start); took < 2*(delay-10*time.Millisecond) {
		t.Errorf("there and back took %v with a delay of %v each way", took, delay)
	}
	link.Delay(0, 0)
	say(t, conn, "quick")
	hear(t, conn, "quick")
}

func TestLink_ThrottleLimitsAllConnections(t *testing.T) {
	const rate, size = 100 << 10, 10 << 10
	link := newLink(t, echo(t))
	link.Throttle(rate)
	a, b := dial(t, link), dial(t, link)
	payload := strings.Repeat("x", size)
	start := time.Now()
	say(t, a, payload)
	say(t, b, payload)
	hear(t, a, payload)
	hear(t, b, payload)
	if took, least := time.Since(start), time.Second*2*size/rate; took < least {
		t.Errorf("twice %d bytes took %v, at %d bytes a second it is %v at least", size, took, rate, least)
	}
	link.Throttle(10) // a megabyte would take a day
	big := strings.Repeat("y", 1<<20)
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.WriteString(a, big) })
	eventually(t, "a few bytes are through", func() bool { return link.Counters().Up > 2*size })
	link.Throttle(0)
	hear(t, a, big)
	wg.Wait()
}

func TestLink_TargetCanStartLateAndMove(t *testing.T) {
	refusing := newLink(t, "127.0.0.1:1")
	must(t, refusing.Cut(Refuse))
	link := newLink(t, refusing.Addr())
	// The reset can already end the handshake.
	conn, err := net.DialTimeout("tcp", link.Addr(), patience)
	if err == nil {
		wantReset(t, conn)
		_ = conn.Close()
	} else if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatal(err)
	}
	link.SetTarget(echo(t))
	conn = dial(t, link)
	say(t, conn, "hello")
	hear(t, conn, "hello")
}

func TestLink_CloseWorksInEveryState(t *testing.T) {
	target := echo(t)
	before := runtime.NumGoroutine()
	for _, prepare := range []func(*Link){
		func(*Link) {},
		func(l *Link) { l.HalfOpen() },
		func(l *Link) { _ = l.Cut(Blackhole) },
		func(l *Link) { _ = l.Cut(Refuse) },
		func(l *Link) { l.Delay(time.Hour, 0) },
		func(l *Link) { l.Throttle(1) },
	} {
		link, err := New(target)
		must(t, err)
		conn := dial(t, link)
		prepare(link)
		_, _ = io.WriteString(conn, strings.Repeat("x", 1<<10)) // refused by a cut link
		must(t, link.Close())
		must(t, link.Close())
		must(t, link.Restore()) // after Close nothing opens again
		if _, err := net.DialTimeout("tcp", link.Addr(), patience); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial of a closed link: %v", err)
		}
	}
	eventually(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before })
}

func TestLink_FaultsAreConcurrencySafe(t *testing.T) {
	link := newLink(t, echo(t))
	var wg sync.WaitGroup
	for _, do := range []func(){
		func() { _ = link.Cut(Refuse) }, func() { _ = link.Cut(Blackhole) }, func() { _ = link.Restore() },
		func() { link.Delay(time.Microsecond, time.Microsecond) }, func() { link.Throttle(1 << 30) },
		link.Reset, link.HalfOpen, func() { link.Counters() },
		func() {
			if conn, err := net.Dial("tcp", link.Addr()); err == nil {
				_, _ = io.WriteString(conn, "x")
				_ = conn.Close()
			}
		},
	} {
		wg.Go(func() {
			for range 50 {
				do()
			}
		})
	}
	wg.Wait()
	link.Reset()
	must(t, link.Restore())
	conn := dial(t, link)
	say(t, conn, "still there")
	hear(t, conn, "still there")
}

func TestNew_RejectsAddressWithoutPort(t *testing.T) {
	if _, err := New("127.0.0.1"); err == nil || !strings.Contains(err.Error(), "host:port") {
		t.Errorf("got %v", err)
	}
}
