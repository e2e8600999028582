package agent

import "testing"

func TestDisconnectReason_NamesEachAddress(t *testing.T) {
	a := &agent{}
	is := func(want string) {
		t.Helper()
		if err := a.connected(); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	is("not connected yet")
	a.disconnectReason.set("", "no API server")
	is("not connected: no API server")
	a.disconnectReason.set("hub:443", "no route to host")
	is("not connected: no route to host")
	a.disconnectReason.set("standby:443", "Overloaded: this hub is a standby")
	is("not connected: hub:443: no route to host; standby:443: Overloaded: this hub is a standby")
	a.disconnectReason.reset()
	is("not connected yet")
	a.open.Store(true)
	if err := a.connected(); err != nil {
		t.Error(err)
	}
}
