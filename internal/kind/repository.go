package kind

import (
	"encoding/base64"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// RepositoryKind is the scope of repository and repo-creds Secrets. They follow their project to the managed agents
// that have it, and leave with it, adopted or not: credentials must not stay. An autonomous agent's never leave the
// spoke. Credentials to push also need an Application that pushes, see hydrator.go.
type RepositoryKind struct{}

// RepositoryScope is the kind's name on the wire.
const RepositoryScope = "repository"

const secretType = "argocd.argoproj.io/secret-type"

func isRepositoryType(t string) bool { return t == "repository" || t == "repo-creds" || isWriteType(t) }

func (RepositoryKind) Scope() string { return RepositoryScope }

func (RepositoryKind) Resource() Resource { return Secrets }

func (RepositoryKind) Traits() Traits {
	return Traits{Name: "repositories", ManagedOnly: true, NoBudget: true, Credentials: true, Reads: []Resource{AppProjects},
		Selector: secretType + " in (repository,repo-creds," + writeRepository + "," + writeCredentials + ")", Agents: matchRepository}
}

func (RepositoryKind) Matches(o *Object) bool { return isRepositoryType(o.Label(secretType)) }

// Publish implements Kind. It looks up the AppProject.
func (r RepositoryKind) Publish(o *Object, w *Env) (Item, bool) {
	if w.Side != Hub || w.Agent.Mode != Managed || !r.Matches(o) || !selected(o, w) ||
		o.Namespace() != w.HubArgoNamespace || o.IsDeleting() || CanPush(o) && !pushNeeded(o, w) {
		return Item{}, false
	}
	item := Item{Key: engine.Key{Name: o.Name()}}
	if project := RepositoryProject(o); project != "" {
		p := w.find(AppProjects, w.HubArgoNamespace, project)
		if p == nil || !PlacedProject(p, w) {
			return Item{}, false
		}
		item.DependsOn = engine.Key{Name: project}
	} else if !w.Settings.ShareUnscopedRepositories {
		return Item{}, false
	}
	item.Content = repositoryPayload(o, PublishedUID(o, w), w).content()
	return item, item.Content != nil
}

// RepositoryProject returns the project of a repository Secret, or "".
func RepositoryProject(o *Object) string {
	return secretText(o, "project")
}

// secretText returns a value of a Secret, or "".
func secretText(o *Object, key string) string {
	value, err := base64.StdEncoding.DecodeString(rawjson.Text(o.Get("data", key)))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(value))
}

func repositoryPayload(o *Object, uid string, w *Env) *payload {
	p := &payload{uid: uid}
	p.metadata(o, false, w)
	if data := o.Get("data"); isObject(data) {
		p.body.Set("data", data)
	}
	return p
}

func (r RepositoryKind) ReadReplica(o *Object, w *Env) (ReplicaItem, bool) {
	if w.Side != Spoke || w.Agent.Mode != Managed || !r.Matches(o) || ignored(o) || o.Namespace() != w.SpokeArgoNamespace {
		return ReplicaItem{}, false
	}
	ownership := ReadOwnership(o, w)
	return ReplicaItem{Key: engine.Key{Name: o.Name()}, Content: repositoryPayload(o, ownership.Source, w).content(), Ownership: ownership}, true
}

func (r RepositoryKind) Key(o *Object, w *Env) (engine.Key, bool) { return managedKey(o, w) }

func (RepositoryKind) Target(k engine.Key, w *Env) (Ref, error) {
	return managedTarget(k, Secrets, w)
}

// managedKey and managedTarget are for kinds that only a managed agent gets, in Argo CD's namespace on both sides.
func managedKey(o *Object, w *Env) (engine.Key, bool) {
	return engine.Key{Name: o.Name()}, w.Agent.Mode == Managed && o.Namespace() == argoNamespace(w)
}

func managedTarget(k engine.Key, resource Resource, w *Env) (Ref, error) {
	if w.Agent.Mode != Managed {
		return Ref{}, reject(engine.WrongMode, "only a managed agent is sent objects of kind %s", resource.Kind)
	}
	if err := checkKey(k); err != nil {
		return Ref{}, err
	}
	if k.Namespace != "" {
		return Ref{}, reject(engine.Invalid, "the key of a %s has no namespace", resource.Kind)
	}
	return Ref{resource, argoNamespace(w), k.Name}, nil
}

// Merge implements Kind. No other Secret of the spoke is changed, whatever the hub sends: not Argo CD's own, and no
// cluster Secret.
func (r RepositoryKind) Merge(local *Object, k engine.Key, content, _ []byte, ownership Ownership, w *Env) (*Object, error) {
	ref, p, err := readItem(r, "repositories", k, content, w)
	if err != nil {
		return nil, err
	}
	data := p.body.Get("data")
	if !isRepositoryType(rawjson.Text(p.labels.Get(secretType))) || !isStringMap(data) {
		return nil, reject(engine.Invalid, "%s is not a repository", k)
	}
	d := createOrEdit(local, ref)
	switch {
	case local == nil:
		d.top.Set("type", rawjson.Quote("Opaque"))
	case !r.Matches(local):
		return nil, reject(engine.NameTaken, "Secret %s exists here and is not a repository", k)
	case ignored(local):
		return nil, errIgnored(k.String())
	}
	p.apply(d, local, false, ownership, "", w)
	setOrRemove(&d.top, "data", data)
	return d.done()
}

func (RepositoryKind) Release(o *Object, _ *Env) *Object { return release(o) }

func (RepositoryKind) Keeps(*Object) bool { return false }
