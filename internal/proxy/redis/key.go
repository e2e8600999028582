package redis

import (
	"bytes"
	"strconv"
	"strings"
)

// Kind is the content of a key of an Application.
type Kind string

// The kinds of keys that agents answer.
const (
	ManagedResources Kind = "managed-resources"
	ResourcesTree    Kind = "resources-tree"
)

const gzipSuffix = ".gz"

// appKey is the name of a key in which Argo CD caches data about an Application:
//
//	app|<kind>|[<namespace>_]<name>|[<shard>|]<version of the cache>[.gz]
//
// A namespace or name contains neither '_' nor '|'.
type appKey struct {
	kind    Kind
	app     string // [<namespace>_]<name>
	rest    string // [<shard>|]<version>
	zipped  bool
	version string
}

var appPrefix = []byte("app|")

// parseKey reads the key of an Application. It returns false for any other key.
func parseKey(b []byte) (appKey, bool) {
	if !bytes.HasPrefix(b, appPrefix) || len(b) > 1024 {
		return appKey{}, false
	}
	kind, rest, found := strings.Cut(string(b[len(appPrefix):]), "|")
	k := appKey{kind: Kind(kind)}
	if !found || k.kind != ManagedResources && k.kind != ResourcesTree {
		return appKey{}, false
	}
	if k.app, rest, found = strings.Cut(rest, "|"); !found || k.app == "" {
		return appKey{}, false
	}
	k.rest, k.zipped = strings.CutSuffix(rest, gzipSuffix)
	k.version = k.rest
	if shard, version, found := strings.Cut(k.rest, "|"); found {
		if _, err := strconv.ParseUint(shard, 10, 30); err != nil || k.kind != ResourcesTree {
			return appKey{}, false
		}
		k.version = version
	}
	if k.version == "" || strings.Contains(k.version, "|") {
		return appKey{}, false
	}
	return k, true
}

// names returns namespace and name. The namespace is empty for Applications in Argo CD's namespace.
func (k appKey) names() (namespace, name string) {
	if namespace, name, found := strings.Cut(k.app, "_"); found {
		return namespace, name
	}
	return "", k.app
}

// isChannel reports whether Argo CD publishes changes of the Application under this name.
func (k appKey) isChannel() bool {
	return k.kind == ManagedResources && !k.zipped
}

// plain returns the same key for another Application, without compression.
func (k appKey) plain(app string) string {
	return "app|" + string(k.kind) + "|" + app + "|" + k.rest
}

// channel returns the channel on which Argo CD publishes changes of an Application.
func (k appKey) channel(app string) string {
	return "app|" + string(ManagedResources) + "|" + app + "|" + k.version
}
