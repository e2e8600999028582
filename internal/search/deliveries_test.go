package search

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

func delta(scope, name, uid string, seq uint64) engine.Delta {
	return engine.Delta{Scope: scope, Items: []engine.DeltaItem{{Seq: seq, Key: engine.Key{Name: name}, Content: []byte(`{"uid":"` + uid + `"}`)}}}
}

func ack(name string, seq uint64, handled int64, code engine.Code) engine.Ack {
	return engine.Ack{Scope: kind.ApplicationScope, Items: []engine.AckItem{{Seq: seq, Key: engine.Key{Name: name}, HandledMillis: handled, Code: code}}}
}

func TestDeliveries_KeepTheLastOfEachApplication(t *testing.T) {
	d := NewDeliveries()
	at := func(seconds int64) time.Time { return time.Unix(seconds, 0).UTC() }
	is := func(want string) {
		t.Helper()
		got := "none"
		if one, known := d.of("a", "web", "1"); known {
			got = fmt.Sprint(one.Sent.Unix(), " ", max(one.Acknowledged.Unix(), 0), " ", one.HandledMillis, " ", one.Code)
		}
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	d.Sent("a", delta(kind.AppProjectScope, "web", "1", 1), at(1))
	is("none")
	d.Sent("a", delta(kind.ApplicationScope, "web", "1", 1), at(10))
	is("10 0 0 ")
	d.Acknowledged("b", ack("web", 1, 5, ""), at(11)) // of another agent
	d.Acknowledged("a", ack("web", 2, 5, ""), at(11)) // of another delivery
	is("10 0 0 ")
	d.Acknowledged("a", ack("web", 1, 250, ""), at(11))
	d.Acknowledged("a", ack("web", 1, 900, ""), at(15)) // repeated
	is("10 11 250 ")
	d.Sent("a", delta(kind.ApplicationScope, "web", "1", 3), at(20))
	d.Acknowledged("a", ack("web", 3, 1<<40, engine.Forbidden), at(21)) // more than is possible
	is("20 21 1000 Forbidden")
	gone := delta(kind.ApplicationScope, "web", "1", 4)
	gone.Items[0].Gone = true
	d.Sent("a", gone, at(30))
	is("20 21 1000 Forbidden")
	d.Sent("a", delta(kind.ApplicationScope, "web", "2", 5), at(40)) // another Application with the same name
	is("none")
	for i := range maxDeliveries {
		d.Sent("a", delta(kind.ApplicationScope, fmt.Sprint("x", i), "x", uint64(i)), at(50))
	}
	if _, known := d.of("a", "web", "2"); known || len(d.items) != maxDeliveries || len(d.order) != maxDeliveries {
		t.Errorf("%d deliveries are remembered", len(d.items))
	}
	var off *Deliveries
	off.Sent("a", gone, at(1))
	off.Acknowledged("a", ack("web", 1, 1, ""), at(1))
}

func TestDelivery_IsShownToCallersThatSeeTheApplication(t *testing.T) {
	s, _ := newAgentServer(t)
	s.cfg.Deliveries = NewDeliveries()
	for _, one := range [][3]string{{"a", "web", "uid-1"}, {"b", "secret-web", "uid-2"}} {
		s.cfg.Deliveries.Sent(one[0], delta(kind.ApplicationScope, one[1], one[2], 1), time.Unix(100, 0))
	}
	for _, test := range []struct {
		user, parameters string
		code             int
		sent             bool
	}{
		{"team", "namespace=a&name=web&uid=uid-1", 200, true},
		{"team", "namespace=a&name=web&uid=uid-2", 200, false}, // of an Application that it does not see
		{"team", "namespace=a&name=web", 200, false},
		{"team", "namespace=b&name=secret-web&uid=uid-2", 403, false},
		{"team", "namespace=a&name=none&uid=uid-2", 404, false},
		{"team", "namespace=a&name=secret-web&uid=uid-2", 404, false},
		{"admin", "namespace=b&name=secret-web&uid=uid-2", 200, true},
		{"stranger", "namespace=a&name=web&uid=uid-1", 403, false},
		{"", "namespace=a&name=web&uid=uid-1", 401, false},
		{"admin", "namespace=a&name=web%20or&uid=uid-1", 400, false},
		{"admin", "name=web&uid=uid-1", 400, false},
		{"admin", "namespace=a&name=web&query=x", 400, false},
	} {
		code, body := get(t, s, test.user, "/v1/delivery?"+test.parameters)
		if code != test.code || strings.Contains(body, `"sent"`) != test.sent || code != http.StatusOK && strings.Contains(body, "uid-") {
			t.Errorf("%s %s: %d %s", test.user, test.parameters, code, body)
		}
	}
}
