package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	pb "github.com/argocd-agent/argocd-agent/api/argocdagent/v1"
	"github.com/argocd-agent/argocd-agent/lab"
)

// hostileClient is a hostile client with a valid certificate for its own name.
type hostileClient struct {
	name   string
	stream grpc.BidiStreamingClient[pb.CloudEvent, pb.CloudEvent]
	conn   *grpc.ClientConn
	sent   int
	seq    uint64
	got    chan proto.Message // closed at the end of the stream
	epoch  uint64
}

// dialAs connects with a name and mode. Received messages are sent to got.
func dialAs(t *testing.T, w *testEnv, name, mode string) *hostileClient {
	t.Helper()
	cert := w.pki.forADay(t, name)
	conn, err := grpc.NewClient("127.0.0.1:"+w.port, grpc.WithTransportCredentials(credentials.NewTLS(w.pki.client(t, &cert))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := pb.NewSyncClient(conn).Sync(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m := &hostileClient{name: name, stream: stream, conn: conn, got: make(chan proto.Message, 10000), epoch: uint64(time.Now().UnixMilli())}
	go func() { // ends with the stream
		defer close(m.got)
		for {
			event, err := stream.Recv()
			if err != nil {
				return
			}
			message, err := event.GetProtoData().UnmarshalNew()
			if err == nil {
				m.got <- message
			}
		}
	}()
	versions := &pb.Range{Min: 1, Max: 1}
	m.send(t, &pb.Hello{Epoch: &pb.Epoch{Incarnation: m.epoch, Attempt: 1}, ClusterUid: "cluster-of-" + name, Mode: mode, Mapping: "namespace",
		Namespace: lab.ArgoCDNamespace, Protocol: versions, Projection: versions, Store: &pb.Store{Uid: "cluster-of-" + name, Revision: 1}})
	return m
}

func (m *hostileClient) send(t *testing.T, message proto.Message) {
	t.Helper()
	data, err := anypb.New(message)
	if err != nil {
		t.Fatal(err)
	}
	m.sent++
	err = m.stream.Send(&pb.CloudEvent{
		Id: fmt.Sprintf("%d.1.%d", m.epoch, m.sent), Source: "agent/" + m.name, SpecVersion: "1.0",
		Type: "io.argocd-agent.sync.v1." + strings.ToLower(string(message.ProtoReflect().Descriptor().Name())),
		Data: &pb.CloudEvent_ProtoData{ProtoData: data}})
	if err != nil {
		t.Logf("the principal has hung up: %v", err)
	}
}

// expect waits for a message of a type, and passes earlier messages to see.
func expect[M proto.Message](t *testing.T, m *hostileClient, see func(proto.Message)) M {
	t.Helper()
	timeout := time.After(*patience)
	for {
		select {
		case message, ok := <-m.got:
			if !ok {
				t.Fatal("the principal has hung up")
			}
			if found, is := message.(M); is {
				return found
			}
			if see != nil {
				see(message)
			}
		case <-timeout:
			t.Fatalf("there was no %T", *new(M))
		}
	}
}

// item is an item of a Delta.
func (m *hostileClient) item(namespace, name, content string) *pb.Delta_Item {
	m.seq++
	version := sha256.Sum256([]byte(content))
	return &pb.Delta_Item{Seq: m.seq, Key: &pb.Key{Namespace: namespace, Name: name}, Version: version[:16], Content: []byte(content)}
}

func hashOf(namespace, name string) uint64 {
	sum := sha256.Sum256([]byte(namespace + "\x00" + name))
	return binary.BigEndian.Uint64(sum[:8])
}

// victim is an object that mallory attacks. It must not change.
type victim struct {
	object
	before *unstructured.Unstructured
}

func victims(t *testing.T, w *testEnv) []victim {
	t.Helper()
	w.hub.project("victim").create(t, projectOf("managed"))
	w.hub.secret("victim-repo").create(t, secretOf("repository", map[string]string{
		"project": "victim", "url": "https://git.example/victim", "password": "victims-password"}))
	spec := appSpec{repo: w.RepoURL("plain"), destination: "managed", namespace: "victim", project: "victim"}
	w.hub.app("managed", "victim").create(t, spec.object())
	w.hub.app("managed", "victim").becomes(t, outOfSync)
	spec.destination, spec.project = "in-cluster", ""
	w.autonomous().spoke.app(lab.ArgoCDNamespace, "victim").create(t, spec.object())
	w.hub.app("autonomous", "victim").becomes(t, outOfSync)
	spec.destination = "managed"
	w.hub.app(lab.ArgoCDNamespace, "victim").create(t, spec.object()) // an Application of the hub itself
	var all []victim
	for _, o := range []object{w.hub.app("managed", "victim"), w.hub.app("autonomous", "victim"), w.hub.app(lab.ArgoCDNamespace, "victim"),
		w.hub.project("victim"), w.hub.project("autonomous-default"), w.hub.project("default"), w.hub.secret("victim-repo"),
		w.hub.secret("cluster-managed"), w.hub.configMap("argocd-gpg-keys-cm"), w.hub.configMap("argocd-cm")} {
		all = append(all, victim{o, o.get(t)})
	}
	return all
}

// unharmed compares the objects, except for the status that real agents report.
func unharmed(t *testing.T, all []victim) {
	t.Helper()
	for _, v := range all {
		now := v.get(t)
		if now == nil {
			t.Errorf("%s is gone", v)
			continue
		}
		for _, part := range []string{"spec", "data", "operation"} {
			if fmt.Sprint(now.Object[part]) != fmt.Sprint(v.before.Object[part]) {
				t.Errorf("%s of %s was %v and is %v", part, v, v.before.Object[part], now.Object[part])
			}
		}
		if now.GetUID() != v.before.GetUID() || fmt.Sprint(now.GetLabels()) != fmt.Sprint(v.before.GetLabels()) {
			t.Errorf("%s is not what it was", v)
		}
		if strings.Contains(fmt.Sprint(now.Object), "mallory") {
			t.Errorf("mallory was in %s: %v", v, now.Object)
		}
	}
}

func TestHostileAutonomousAgent_WritesOnlyItsScope(t *testing.T) {
	w := shared(t)
	all := victims(t, w)
	w.hub.ensureNamespace(t, "mallory")
	t.Cleanup(func() { w.hub.dismiss(t, "mallory") })
	m := dialAs(t, w, "mallory", "autonomous")
	expect[*pb.Welcome](t, m, nil)

	app := func(project, destination string) string {
		return `{"metadata":{"labels":{"by":"mallory"}},"spec":{"destination":` + destination + `,"project":"` + project + `","source":{"repoURL":"mallory"}},"uid":"u-1"}`
	}
	project := func(destinations, sources, policy string) string {
		return `{"spec":{"description":"mallory","destinations":` + destinations + `,"roles":[{"name":"r","policies":["` + policy + `"]}],"sourceNamespaces":` + sources + `},"uid":"u-2"}`
	}
	const here, own, policy = `{"name":"mallory","namespace":"x"}`, `["mallory"]`, `p, proj:mallory-victim:r, applications, *, mallory-victim/mallory/*, allow`
	const status = `{"status":{"health":{"status":"mallory"}}}`
	hostile := []*pb.Delta{
		{Scope: "application", Items: []*pb.Delta_Item{
			m.item("managed", "victim", app("victim", here)), m.item(lab.ArgoCDNamespace, "victim", app("autonomous-default", here)),
			m.item("", "victim", app("mallory-default", `{"name":"managed","namespace":"x"}`)),
			m.item("", "victim2", app("mallory-default", `{"name":"mallory","namespace":"x","server":"https://kubernetes.default.svc"}`))}},
		{Scope: "appproject", Items: []*pb.Delta_Item{
			m.item("autonomous", "default", project(`[`+here+`]`, own, policy)),
			m.item("", "one", project(`[{"name":"*","namespace":"*","server":"*"}]`, own, policy)),
			m.item("", "two", project(`[`+here+`]`, `["*"]`, policy)),
			m.item("", "three", project(`[`+here+`]`, own, `p, proj:victim:r, applications, *, victim/*, allow`))}},
		{Scope: "status", Items: []*pb.Delta_Item{m.item("managed", "victim", status), m.item("", "victim", status)}},
		{Scope: "repository", Items: []*pb.Delta_Item{m.item("", "victim-repo", `{"data":{"password":"mallory"},"uid":"u-3"}`)}},
		{Scope: "gpgkey", Items: []*pb.Delta_Item{m.item("", "argocd-gpg-keys-cm", `{"data":{"mallory":"key"},"uid":"u-4"}`)}},
		{Scope: "command", Items: []*pb.Delta_Item{m.item("", "victim", `{"operation":{"info":[{"name":"argocd-agent/command","value":"c"}],"sync":{}}}`)}},
		{Scope: "configmap", Items: []*pb.Delta_Item{m.item("", "argocd-cm", `{"data":{"admin.enabled":"mallory"}}`)}},
	}
	for _, delta := range hostile {
		m.send(t, delta)
	}
	for _, scope := range []string{"application", "appproject", "repository", "gpgkey", "status", "command"} {
		m.send(t, &pb.Finished{Scope: scope, Key: &pb.Key{Namespace: "managed", Name: "victim"}})
		m.send(t, &pb.Confirm{Scope: scope, Id: "x"})
		m.send(t, &pb.Ask{Scope: scope, Round: 1, Prefixes: [][]byte{{}}})
		m.send(t, &pb.Want{Scope: scope, Hashes: []uint64{hashOf("", "victim"), hashOf("managed", "victim"), hashOf("", "victim-repo")}})
		m.send(t, &pb.Roots{Items: []*pb.Root{{Scope: scope}}}) // an empty set, which requests the deletion of everything
	}
	last := m.item("", "last", app("mallory-default", here))
	m.send(t, &pb.Delta{Scope: "application", Items: []*pb.Delta_Item{last}})
	t.Cleanup(func() { w.hub.app("mallory", "last").discard(t) })

	// mallory then makes a permitted change. When it arrives, all earlier messages were processed and refused.
	for done := false; !done; {
		ack := expect[*pb.Ack](t, m, func(message proto.Message) { checkSecrecy(t, message, []string{"victim"}) })
		for _, item := range ack.GetItems() {
			if done = item.GetSeq() == last.GetSeq(); done != (item.GetCode() == "") {
				t.Errorf("the principal answered to %s %v: %q %s", ack.GetScope(), item.GetKey(), item.GetCode(), item.GetMessage())
			}
		}
	}
	w.hub.app("mallory", "last").is(t, label("by", "mallory"), field("spec.destination.name", "mallory"))
	if err := countIs(w.hub, "mallory", 1, "", ""); err != nil {
		t.Errorf("Applications of mallory's: %v", err)
	}
	for _, name := range []string{"one", "two", "three", "victim", "default"} {
		w.hub.project("mallory-" + name).isAbsent(t)
	}
	unharmed(t, all)
}

// checkSecrecy fails if a message contains one of the texts.
func checkSecrecy(t *testing.T, message proto.Message, forbidden []string) {
	t.Helper()
	for _, text := range forbidden {
		if strings.Contains(fmt.Sprint(message), text) {
			t.Errorf("the hostile client received %q: %v", text, message)
		}
	}
}

func TestHostileManagedAgent_ReadsOnlyItsScope(t *testing.T) {
	w := shared(t)
	all := victims(t, w)
	w.hub.ensureNamespace(t, "mallory-two")
	t.Cleanup(func() { w.hub.dismiss(t, "mallory-two") })
	m := dialAs(t, w, "mallory-two", "managed")
	expect[*pb.Welcome](t, m, nil)
	secret := []string{"victims-password", "victim-repo", "victim"}
	see := func(message proto.Message) {
		ack, ok := message.(*pb.Ack)
		if !ok {
			checkSecrecy(t, message, secret)
		}
		for _, item := range ack.GetItems() { // these repeat what mallory sent
			if item.GetCode() == "" {
				t.Errorf("the principal took %s %v", ack.GetScope(), item.GetKey())
			}
		}
	}
	for _, scope := range []string{"application", "appproject", "repository", "gpgkey", "command", "status"} {
		m.send(t, &pb.Ask{Scope: scope, Round: 1, Prefixes: [][]byte{{}}})
		m.send(t, &pb.Want{Scope: scope, Hashes: []uint64{hashOf("", "victim"), hashOf("managed", "victim"), hashOf("argocd", "victim"),
			hashOf("", "victim-repo"), hashOf("argocd", "victim-repo"), hashOf("", "cluster-managed")}})
		m.send(t, &pb.Delta{Scope: scope, Items: []*pb.Delta_Item{m.item("", "victim", `{"status":{"health":{"status":"mallory"}},"uid":"u"}`)}})
	}
	// It gets its own items after the responses to all earlier requests.
	w.hub.app("mallory-two", "bait").create(t, appSpec{repo: "r", destination: "mallory-two", namespace: "x"}.object())
	for {
		delta := expect[*pb.Delta](t, m, see)
		see(delta)
		if delta.GetScope() == "application" {
			if len(delta.GetItems()) != 1 || delta.GetItems()[0].GetKey().GetName() != "bait" {
				t.Errorf("mallory got %v", delta)
			}
			break
		}
	}
	unharmed(t, all)
}

func TestHostileAgent_CannotChooseModeOrServices(t *testing.T) {
	w := shared(t)
	w.hub.ensureNamespace(t, "mallory-three")
	t.Cleanup(func() { w.hub.dismiss(t, "mallory-three") })
	m := dialAs(t, w, "mallory-three", "managed")
	expect[*pb.Welcome](t, m, nil)

	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	tunnel, err := pb.NewTunnelClient(m.conn).Open(ctx)
	if err == nil {
		if err = tunnel.Send(&pb.Frame{Data: []byte("x")}); err == nil {
			_, err = tunnel.Recv()
		}
	}
	if err == nil {
		t.Error("a tunnel without a request was opened")
	}
	m.send(t, &pb.Delta{Scope: "status", Items: []*pb.Delta_Item{m.item("", "../victim", "{}")}})
	if bye := expect[*pb.Bye](t, m, nil); bye.GetCode() != "BadMessage" {
		t.Errorf("a name that no object can have: %v", bye)
	}
	_ = m.conn.Close()

	again := dialAs(t, w, "mallory-three", "autonomous")
	if bye := expect[*pb.Bye](t, again, nil); bye.GetCode() != "WrongMode" {
		t.Errorf("another mode than registered: %v", bye)
	}
	victimCluster := dialAs(t, w, "managed", "managed") // the victim's name from another cluster
	if bye := expect[*pb.Bye](t, victimCluster, nil); bye.GetCode() != "WrongCluster" {
		t.Errorf("another cluster under a known name: %v", bye)
	}
	w.managed().connected(t)
}

func TestHostileAgent_IsDisconnectedForTooLargeMessage(t *testing.T) {
	w := shared(t)
	w.hub.ensureNamespace(t, "mallory-four")
	t.Cleanup(func() { w.hub.dismiss(t, "mallory-four") })
	m := dialAs(t, w, "mallory-four", "managed")
	expect[*pb.Welcome](t, m, nil)
	m.send(t, &pb.Delta{Scope: "status", Items: []*pb.Delta_Item{m.item("", "huge", `{"status":"`+strings.Repeat("x", 8<<20)+`"}`)}})
	timeout := time.After(*patience)
	for open := true; open; {
		select {
		case _, open = <-m.got:
		case <-timeout:
			t.Fatal("the principal has not hung up")
		}
	}
	w.managed().connected(t)
	app := w.hub.app("managed", "after-huge")
	app.create(t, appSpec{repo: w.RepoURL("plain"), destination: "managed", namespace: "x"}.object())
	app.becomes(t, outOfSync)
}
