// Package hubstate has the state of a hub among the hubs of one group: ConfigMap argocd-agent-hub in the namespace of the
// principal. A hub without the ConfigMap is alone and active.
//
// The hubs of a group share an identity, which is part of the ownership annotations of all replicas. The generation is the
// fencing token: it grows with every promotion, and agents do not follow a hub with a lower one.
package hubstate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/kube"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// ConfigMap is the name of the ConfigMap with the state.
const ConfigMap = "argocd-agent-hub"

// Keys of the ConfigMap. Any other key is an error: another release may give it a meaning.
const (
	keyIdentity    = "identity"
	keyRole        = "role"
	keyGeneration  = "generation"
	keyPredecessor = "predecessor"
)

// MaxGeneration bounds the generation: a greater one could not be sent to agents.
const MaxGeneration = 1<<31 - 1

// Role is what a hub does.
type Role string

const (
	Active  Role = "active"  // serves agents
	Standby Role = "standby" // serves no agents
)

// State is the state of a hub. It is comparable.
type State struct {
	Identity   string // UID that all hubs of the group share
	Role       Role
	Generation uint64 // at least 1

	// Predecessor is the store of the hub before this one, and the revision up to which this hub has received everything
	// of it: 0 if that is unknown. Zero if there is no such hub.
	Predecessor engine.Store
}

// Alone returns the state of a hub without the ConfigMap.
func Alone(clusterUID string) State { return State{Identity: clusterUID, Role: Active, Generation: 1} }

// AgentName returns the name under which a standby with this cluster UID is registered on the active hub.
func AgentName(clusterUID string) string {
	sum := sha256.Sum256([]byte(clusterUID))
	return "hub-" + hex.EncodeToString(sum[:5])
}

// InvalidError is why the content of the ConfigMap is not a state.
type InvalidError struct{ Reason string }

func (e *InvalidError) Error() string { return "ConfigMap " + ConfigMap + " is invalid: " + e.Reason }

func invalid(format string, args ...any) error { return &InvalidError{fmt.Sprintf(format, args...)} }

// uid matches the UID of an object.
var uid = regexp.MustCompile(`^[0-9A-Za-z]([-0-9A-Za-z]{0,126}[0-9A-Za-z])?$`)

// Parse returns the state in the data of the ConfigMap. Its errors are InvalidErrors.
func Parse(data map[string]string) (State, error) {
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if !slices.Contains([]string{keyIdentity, keyRole, keyGeneration, keyPredecessor}, key) {
			return State{}, invalid("key %q is unknown to this release", key)
		}
	}
	s := State{Identity: data[keyIdentity], Role: Role(data[keyRole])}
	if !uid.MatchString(s.Identity) {
		return State{}, invalid("%s %q is not a UID", keyIdentity, s.Identity)
	}
	if s.Role != Active && s.Role != Standby {
		return State{}, invalid("%s %q: must be %s or %s", keyRole, s.Role, Active, Standby)
	}
	var ok bool
	if s.Generation, ok = number(data[keyGeneration]); !ok || s.Generation == 0 || s.Generation > MaxGeneration {
		return State{}, invalid("%s %q is not a positive number of at most %d", keyGeneration, data[keyGeneration], MaxGeneration)
	}
	if text, given := data[keyPredecessor]; given {
		store, revision, _ := strings.Cut(text, "/")
		if s.Predecessor.Revision, ok = number(revision); !ok || !uid.MatchString(store) {
			return State{}, invalid("%s %q: must be the UID of a store, a slash and a revision", keyPredecessor, text)
		}
		s.Predecessor.UID = store
	}
	return s, nil
}

// number parses a number as strconv.FormatUint writes it.
func number(text string) (uint64, bool) {
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == text
}

// FormatStore returns a store as UID/REVISION, or "" for the zero value.
func FormatStore(s engine.Store) string {
	if s.UID == "" {
		return ""
	}
	return s.UID + "/" + strconv.FormatUint(s.Revision, 10)
}

// Of returns the state in the ConfigMap. If o is nil, the hub is alone.
func Of(o *kind.Object, clusterUID string) (State, error) {
	if o == nil {
		return Alone(clusterUID), nil
	}
	data, _ := rawjson.StringMap(o.Get("data")) // without data, the identity is missing
	return Parse(data)
}

func ref(namespace string) kind.Ref {
	return kind.Ref{Resource: kind.ConfigMaps, Namespace: namespace, Name: ConfigMap}
}

// Read returns the state of the hub with this cluster UID, and the ConfigMap that Write needs. The ConfigMap is nil if
// there is none.
func Read(ctx context.Context, client *kube.Client, namespace, clusterUID string) (State, *kind.Object, error) {
	o, err := client.Get(ctx, ref(namespace))
	if err != nil {
		return State{}, nil, fmt.Errorf("get ConfigMap %s: %w", ConfigMap, err)
	}
	s, err := Of(o, clusterUID)
	return s, o, err
}

// Write stores a state if the ConfigMap is still the one that Read returned. If it has changed or exists by now, the error
// is a conflict.
func Write(ctx context.Context, client *kube.Client, namespace string, read *kind.Object, s State) error {
	data := map[string]any{keyIdentity: s.Identity, keyRole: string(s.Role), keyGeneration: strconv.FormatUint(s.Generation, 10)}
	if store := FormatStore(s.Predecessor); store != "" {
		data[keyPredecessor] = store
	}
	if err := check(data); err != nil {
		return err
	}
	metadata := map[string]any{"name": ConfigMap, "namespace": namespace}
	var err error
	if read == nil {
		metadata["labels"] = map[string]string{"app.kubernetes.io/part-of": "argocd-agent"}
		_, err = client.Create(ctx, ref(namespace), map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
	} else {
		metadata["resourceVersion"], metadata["uid"] = read.ResourceVersion(), read.UID()
		if s.Predecessor.UID == "" {
			data[keyPredecessor] = nil
		}
		_, err = client.Patch(ctx, ref(namespace), map[string]any{"metadata": metadata, "data": data})
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", ConfigMap, err)
	}
	return nil
}

// check returns an error if data is not a state.
func check(data map[string]any) error {
	text := map[string]string{}
	for key, value := range data {
		text[key] = fmt.Sprint(value)
	}
	_, err := Parse(text)
	return err
}
