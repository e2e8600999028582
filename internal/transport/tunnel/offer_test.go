package tunnel

import (
	"context"
	"net"
	"strings"
	"testing"
)

func TestOffer_ListsTargetsUnlessTheyAreTooLong(t *testing.T) {
	handler := func(context.Context, net.Conn) {}
	if offer := Offer(map[string]Handler{"b": handler, "a": handler}); offer != "tunnels=a,b" {
		t.Errorf("%q", offer)
	}
	if offer := Offer(map[string]Handler{strings.Repeat("a", maxOffer): handler}); offer != "" {
		t.Errorf("%q", offer)
	}
}
