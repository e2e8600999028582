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
	"time"

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

// Annotations of the ConfigMap. They are no keys, because releases that do not know them refuse unknown keys.
const (
	markAnnotation      = kind.Prefix + "predecessor-mark"  // history mark of the predecessor's store, as RECORD/NUMBER
	provenAnnotation    = kind.Prefix + "received-at"       // State.ProvenAt in RFC 3339
	wasActiveAnnotation = kind.Prefix + "active-generation" // State.WasActive
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
	// of it: 0 if that is unknown. Zero if there is no such hub. Its history mark is the latest that this hub knows, so that
	// a standby that starts again recognizes a predecessor that was restored in the meantime.
	Predecessor engine.Store

	// ProvenAt is when a standby was last proven to have everything of its predecessor, by its own clock: seconds since 1970,
	// or 0 if that is unknown.
	ProvenAt int64

	// WasActive is the generation with which a hub was promoted or demoted last: 0 if it never was, or by an older release.
	WasActive uint64
}

// LastActive returns the generation with which a hub is or was active last: 0 if it never was, or if that is unknown.
func (s State) LastActive() uint64 {
	if s.Role == Active {
		return s.Generation
	}
	return s.WasActive
}

// WasActiveWith reports whether a hub is or was active last with a generation of a group. Another hub that is active with it is
// not its successor: two hubs claim to be active.
func (s State) WasActiveWith(identity string, generation uint64) bool {
	return s.Identity == identity && s.LastActive() == generation
}

// SameRole reports whether two states have the same role and generation in the same group.
func SameRole(a, b State) bool {
	return a.Identity == b.Identity && a.Role == b.Role && a.Generation == b.Generation
}

// Alone returns the state of a hub without the ConfigMap.
func Alone(clusterUID string) State { return State{Identity: clusterUID, Role: Active, Generation: 1} }

// Promoted returns the generation of an active hub that has replaced another one, or 0.
func (s State) Promoted() uint64 {
	if s.Role != Active || s.Predecessor.UID == "" {
		return 0
	}
	return s.Generation
}

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
	s, err := Parse(data)
	if s.Predecessor.UID != "" {
		s.Predecessor.Mark = engine.ParseHistoryMark(o.Annotation(markAnnotation))
	}
	if s.Role == Standby {
		s.ProvenAt = parseTime(o.Annotation(provenAnnotation))
	}
	if n, ok := number(o.Annotation(wasActiveAnnotation)); ok && n <= s.Generation {
		s.WasActive = n
	}
	return s, err
}

// parseTime returns a time in RFC 3339 as seconds since 1970, or 0 if the text is not one.
func parseTime(text string) int64 {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0
	}
	return max(0, t.Unix())
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

// Content returns data and annotations of the ConfigMap with a state.
func Content(s State) (data, annotations map[string]string) {
	data = map[string]string{keyIdentity: s.Identity, keyRole: string(s.Role), keyGeneration: strconv.FormatUint(s.Generation, 10)}
	annotations = map[string]string{}
	if store := FormatStore(s.Predecessor); store != "" {
		data[keyPredecessor] = store
		if mark := engine.FormatHistoryMark(s.Predecessor.Mark); mark != "" {
			annotations[markAnnotation] = mark
		}
	}
	if s.Role == Standby && s.ProvenAt != 0 {
		annotations[provenAnnotation] = time.Unix(s.ProvenAt, 0).UTC().Format(time.RFC3339)
	}
	if s.WasActive != 0 {
		annotations[wasActiveAnnotation] = strconv.FormatUint(s.WasActive, 10)
	}
	return data, annotations
}

// Write stores a state if the ConfigMap is still the one that Read returned. If it has changed or exists by now, the error
// is a conflict.
func Write(ctx context.Context, client *kube.Client, namespace string, read *kind.Object, s State) error {
	data, annotations := Content(s)
	if _, err := Parse(data); err != nil {
		return err
	}
	metadata := map[string]any{"name": ConfigMap, "namespace": namespace, "annotations": annotations}
	object := map[string]any{"metadata": metadata, "data": data}
	var err error
	if read == nil {
		metadata["labels"] = map[string]string{"app.kubernetes.io/part-of": "argocd-agent"}
		object["apiVersion"], object["kind"] = "v1", "ConfigMap"
		_, err = client.Create(ctx, ref(namespace), object)
	} else {
		metadata["resourceVersion"], metadata["uid"] = read.ResourceVersion(), read.UID()
		metadata["annotations"], object["data"] = replacing(annotations, markAnnotation, provenAnnotation, wasActiveAnnotation), replacing(data, keyPredecessor)
		_, err = client.Patch(ctx, ref(namespace), object)
	}
	if err != nil {
		return fmt.Errorf("write ConfigMap %s: %w", ConfigMap, err)
	}
	return nil
}

// replacing returns a merge patch that sets values and removes those of keys that have no value.
func replacing(values map[string]string, keys ...string) map[string]any {
	patch := map[string]any{}
	for _, key := range keys {
		patch[key] = nil
	}
	for k, v := range values {
		patch[k] = v
	}
	return patch
}
