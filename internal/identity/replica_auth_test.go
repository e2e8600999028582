package identity

import (
	"crypto/tls"
	"errors"
	"testing"
)

func TestReplicaAuth_AcceptsOnlyTheSameKey(t *testing.T) {
	ca := newAuthority(t, "ca")
	pair := ca.issue(template("resource-proxy"))
	own := pair.store(t)
	port := ServerTLS(own, nil)
	port.NextProtos = []string{"http/1.1"}
	server := ReplicaAuth{Source: own, Protocol: "replicas"}
	server.Accept(port)

	replica := ReplicaAuth{Source: pair.store(t), Protocol: "replicas"}
	client, err := replica.ClientTLS()
	must(t, err)
	state, serverErr, clientErr := shake(t, port, client)
	if serverErr != nil || clientErr != nil || state.NegotiatedProtocol != "replicas" {
		t.Fatal(serverErr, clientErr, state.NegotiatedProtocol)
	}
	must(t, server.Verify(&state))

	for name, other := range map[string]*Store{
		"an agent":             ca.issue(template("agent-a")).store(t),
		"one of the same name": ca.issue(template("resource-proxy")).store(t),
		"of another CA":        newAuthority(t, "stranger").issue(template("resource-proxy")).store(t),
	} {
		t.Run(name+" is refused", func(t *testing.T) {
			client, err := ReplicaAuth{Source: other, Protocol: "replicas"}.ClientTLS()
			must(t, err)
			client.VerifyConnection = nil // it takes any principal
			if _, serverErr, _ := shake(t, port, client); !errors.Is(serverErr, ErrNotReplica) {
				t.Errorf("the port says %v", serverErr)
			}
			client.NextProtos = append(client.NextProtos, "http/1.1") // nor is it accepted otherwise
			if _, serverErr, _ := shake(t, port, client); !errors.Is(serverErr, ErrNotReplica) {
				t.Errorf("the port says %v", serverErr)
			}
		})
		t.Run(name+" is not asked", func(t *testing.T) {
			impostor := ServerTLS(other, nil)
			ReplicaAuth{Source: other, Protocol: "replicas"}.Accept(impostor)
			if _, _, clientErr := shake(t, impostor, client); !errors.Is(clientErr, ErrNotReplica) {
				t.Errorf("the client says %v", clientErr)
			}
		})
	}
	t.Run("a client without certificate is refused", func(t *testing.T) {
		client := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"replicas"}}
		if _, serverErr, _ := shake(t, port, client); serverErr == nil {
			t.Error("a client without certificate is accepted")
		}
	})
	t.Run("others are accepted", func(t *testing.T) {
		client, err := ClientTLS(ca.issue(template("agent-a")).store(t), "principal.example")
		must(t, err)
		client.NextProtos = []string{"http/1.1"}
		state, serverErr, clientErr := shake(t, port, client)
		if serverErr != nil || clientErr != nil || state.NegotiatedProtocol != "http/1.1" {
			t.Fatal(serverErr, clientErr, state.NegotiatedProtocol)
		}
		if err := server.Verify(&state); !errors.Is(err, ErrNotReplica) {
			t.Errorf("accepted as a replica: %v", err)
		}
	})
	t.Run("a replica without the protocol is refused", func(t *testing.T) {
		client := client.Clone()
		client.NextProtos, client.VerifyConnection = nil, nil
		state, serverErr, _ := shake(t, port, client)
		if serverErr == nil && server.Verify(&state) == nil {
			t.Error("accepted as a replica")
		}
	})
}

func TestReplicaAuth_UsesTheCurrentCertificate(t *testing.T) {
	ca := newAuthority(t, "ca")
	here, there := ca.issue(template("resource-proxy")).store(t), ca.issue(template("resource-proxy")).store(t)
	port := ServerTLS(here, nil)
	ReplicaAuth{Source: here, Protocol: "replicas"}.Accept(port)
	meet := func() error {
		client, err := ReplicaAuth{Source: there, Protocol: "replicas"}.ClientTLS()
		must(t, err)
		_, serverErr, clientErr := shake(t, port, client)
		return errors.Join(serverErr, clientErr)
	}
	if err := meet(); !errors.Is(err, ErrNotReplica) {
		t.Errorf("with different certificates: %v", err)
	}
	renewed := ca.issue(template("resource-proxy"))
	must(t, here.Update(renewed.cert, renewed.key, nil))
	must(t, there.Update(renewed.cert, renewed.key, nil))
	must(t, meet())
}
