package kind

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

// This file restores objects of a lost hub from the replicas of its managed agents: the inverse of Publish.
//
// Whose objects they are: the replicas were written from objects of the hub, which their ownership annotations prove. An
// agent can send other content than it has. So an Application deploys to its own agent only, an AppProject permits an agent
// only what that agent has, and roles are never restored. Callers publish what was restored and compare it with what every
// agent has, so that nothing of one agent reaches another one.

// Part is the replica that a managed agent has of an object of the hub.
type Part struct {
	Env     *Env // of the hub, for this agent
	Key     engine.Key
	Content []byte         // hostile until checked
	Written engine.Version // of what the hub wrote, if it is stored in another form; otherwise zero
}

// Matches reports whether the hub has the content of the part: as it is stored, or as the hub wrote it.
func (p *Part) Matches(content []byte) bool {
	return bytes.Equal(p.Content, content) || !p.Written.IsZero() && engine.VersionOf(content) == p.Written
}

// Restore returns the object of the hub from which parts were written. Parts have the same target and are of different
// agents. If existing is not nil, it is the hub's object of that name. Then the result is existing with what it lacks, or
// existing itself if it was restored before. Fields that Publish leaves out are not restored.
func Restore(k Kind, existing *Object, parts []Part) (*Object, error) {
	w := parts[0].Env
	ref, err := k.Target(parts[0].Key, w)
	if err != nil {
		return nil, err
	}
	payloads := make([]*payload, len(parts))
	for i, part := range parts {
		if payloads[i], err = readPart(part); err != nil {
			return nil, fmt.Errorf("agent %s: %w", part.Env.Agent.Name, err)
		}
	}
	p := payloads[0]
	switch k.Scope() {
	case ApplicationScope:
		err = p.restoreApplication(parts)
	case AppProjectScope:
		err = p.restoreProject(parts, payloads)
	case RepositoryScope:
		if !isRepositoryType(rawjson.Text(p.labels.Get(secretType))) || !isStringMap(p.body.Get("data")) {
			return nil, errors.New("it is not a repository")
		}
		err = sameParts(parts, payloads)
	case GPGKeyScope, SettingsScope:
		if !isStringMap(p.body.Get("data")) || !isStringMap(p.body.Get("binaryData")) {
			return nil, errors.New("its data is not text")
		}
		err = sameParts(parts, payloads)
	default:
		return nil, fmt.Errorf("objects of kind %s cannot be restored", k.Scope())
	}
	if err != nil {
		return nil, err
	}
	switch {
	case existing == nil:
		return p.create(ref, w)
	case IsRestored(existing, w) && PublishedUID(existing, w) == p.uid:
		return existing, nil
	case isMarked(existing):
		return nil, errors.New("the hub has an object of this name that is a replica, or was restored from another one")
	}
	return p.claim(k, existing, parts)
}

func readPart(part Part) (*payload, error) {
	p, err := readPayload(part.Content)
	if err != nil {
		return nil, err
	}
	never := func(key string) bool { return neverLabel(key, part.Env) }
	switch {
	case part.Env.Side != Hub || part.Env.Agent.Mode != Managed:
		return nil, errors.New("the agent is not managed")
	case p.deleting:
		return nil, errors.New("it was being deleted")
	case len(without(slices.Clone(p.annotations), neverAnnotation)) != len(p.annotations), len(without(slices.Clone(p.labels), never)) != len(p.labels):
		return nil, errors.New("it has labels or annotations that are never replicated")
	}
	if wide := p.widened(); engine.VersionOf(wide.content()) == part.Written {
		return wide, nil
	}
	return p, nil
}

// widened returns a project with all namespaces where it permits all but some. A workload cluster stores a project in that
// form if its policy protects namespaces.
func (p *payload) widened() *payload {
	spec := members(p.body.Get("spec"))
	var list [][]byte
	for _, d := range readDestinations(spec.Get("destinations")) {
		if denies(d.namespace) {
			d.entry.Set("namespace", rawjson.Quote("*"))
		}
		list = append(list, d.entry.Bytes())
	}
	spec.Set("destinations", rawjson.Join(list))
	wide := *p
	wide.body = rawjson.Object{{Key: "spec", Value: spec.Bytes()}}
	return &wide
}

// sameParts returns an error if parts differ.
func sameParts(parts []Part, payloads []*payload) error {
	first := payloads[0].content()
	for i, p := range payloads {
		if !bytes.Equal(p.content(), first) {
			return fmt.Errorf("agents %s and %s have different content", parts[0].Env.Agent.Name, parts[i].Env.Agent.Name)
		}
	}
	return nil
}

// restored returns annotations with the ownership of a restored object.
func (p *payload) restored(annotations rawjson.Object, w *Env) rawjson.Object {
	setText(&annotations, SourceUID, p.uid)
	setText(&annotations, PrincipalUID, w.PrincipalUID)
	return annotations
}

func (p *payload) create(ref Ref, w *Env) (*Object, error) {
	d := create(ref)
	setList(&d.meta, "labels", p.labels)
	setList(&d.meta, "annotations", p.restored(p.annotations, w))
	setStrings(&d.meta, "finalizers", cascadeOf(p.finalizers))
	switch ref.Resource {
	case Secrets:
		d.top.Set("type", rawjson.Quote("Opaque"))
	case ConfigMaps:
		setArgoLabels(d, ref.Name)
	}
	for _, m := range p.body {
		d.top.Set(m.Key, m.Value)
	}
	return d.done()
}

// claim returns an existing object of the hub as a restored one. A ConfigMap gets the keys that it lacks. The default project
// of a new Argo CD gets the spec of the lost one, unless it is the same for all agents.
func (p *payload) claim(k Kind, existing *Object, parts []Part) (*Object, error) {
	w := parts[0].Env
	d := edit(existing)
	setList(&d.meta, "annotations", p.restored(members(existing.annotations), w))
	if k.Resource() == ConfigMaps {
		for _, field := range trustFields {
			values := members(existing.Get(field))
			for _, m := range members(p.body.Get(field)) {
				if has := values.Get(m.Key); has != nil && !sameJSON(has, m.Value) {
					return nil, fmt.Errorf("the hub has another value of %s", m.Key)
				}
				values.Set(m.Key, m.Value)
			}
			setList(&d.top, field, values)
		}
	}
	claimed, err := d.done()
	if err != nil || k.Scope() != AppProjectScope || existing.Name() != defaultProject || !sameJSON(existing.Get("spec"), []byte(newDefaultProject)) {
		return claimed, err
	}
	for i := range parts {
		if item, ok := k.Publish(claimed, parts[i].Env); !ok || !parts[i].Matches(item.Content) {
			d.top.Set("spec", p.body.Get("spec"))
			return d.done()
		}
	}
	return claimed, nil
}

// newDefaultProject is the spec of the default project that Argo CD creates when it starts.
const newDefaultProject = `{"sourceRepos":["*"],"destinations":[{"namespace":"*","server":"*"}],"clusterResourceWhitelist":[{"group":"*","kind":"*"}]}`

func (p *payload) restoreApplication(parts []Part) error {
	if len(parts) > 1 {
		return fmt.Errorf("agents %s and %s both have it", parts[0].Env.Agent.Name, parts[1].Env.Agent.Name)
	}
	spec := members(p.body.Get("spec"))
	destination := members(spec.Get("destination"))
	if rawjson.Text(destination.Get("name")) != inClusterName || destination.Get("server") != nil {
		return errors.New("its destination is not the agent's cluster")
	}
	destination.Set("name", rawjson.Quote(parts[0].Env.Agent.Name))
	spec.Set("destination", destination.Bytes())
	p.body = rawjson.Object{{Key: "spec", Value: spec.Bytes()}}
	return nil
}

// restoreProject sets the spec to one that permits each agent what its part permits. Fields that do not depend on the agent
// must be equal in all parts.
func (p *payload) restoreProject(parts []Part, payloads []*payload) error {
	var project restoredProject
	var common rawjson.Object
	var first []byte
	for i, part := range parts {
		spec := members(payloads[i].body.Get("spec"))
		if spec.Get("roles") != nil || spec.Get("permitOnlyProjectScopedClusters") != nil {
			return fmt.Errorf("agent %s: it has roles, or settings of clusters, which are never replicated", part.Env.Agent.Name)
		}
		if err := project.add(&spec, part.Env); err != nil {
			return fmt.Errorf("agent %s: %w", part.Env.Agent.Name, err)
		}
		rest := *payloads[i]
		rest.body = rawjson.Object{{Key: "spec", Value: spec.Bytes()}}
		content, err := rest.canonical()
		switch {
		case err != nil:
			return err
		case i == 0:
			first, common = content, spec
		case !bytes.Equal(first, content):
			return fmt.Errorf("agents %s and %s have different content of it", parts[0].Env.Agent.Name, part.Env.Agent.Name)
		}
	}
	project.set(&common)
	p.body = rawjson.Object{{Key: "spec", Value: common.Bytes()}}
	return nil
}

// restoredProject collects the fields of an AppProject that depend on the agent.
type restoredProject struct {
	destinations, accounts [][]byte
	namespaces             []string
	windows                []restoredWindow
}

type restoredWindow struct {
	rest     []byte // without clusters
	clusters []string
}

// add moves the fields of one agent from its spec, with the name of the agent.
func (r *restoredProject) add(spec *rawjson.Object, w *Env) error {
	for _, d := range readDestinations(spec.Get("destinations")) {
		entry, err := destinationOnHub(d, w.Agent)
		if err != nil {
			return err
		}
		r.destinations = appendNew(r.destinations, entry)
	}
	spec.Remove("destinations")
	windows, _ := rawjson.Elements(spec.Get("syncWindows"))
	spec.Remove("syncWindows")
	for _, one := range windows {
		if err := r.addWindow(members(one), w.Agent.Name); err != nil {
			return err
		}
	}
	accounts, _ := rawjson.Elements(spec.Get("destinationServiceAccounts"))
	spec.Remove("destinationServiceAccounts")
	for _, one := range accounts {
		account := members(one)
		if rawjson.Text(account.Get("server")) != inClusterServer {
			return errors.New("destinationServiceAccounts has another cluster")
		}
		account.Set("server", rawjson.Quote(w.Agent.Server))
		r.accounts = appendNew(r.accounts, account.Bytes())
	}
	if w.Agent.Mapping == ByDestination {
		return nil // sourceNamespaces are replicated
	}
	if spec.Get("sourceNamespaces") != nil {
		return errors.New("it has sourceNamespaces")
	}
	if w.Agent.HubNamespace != w.HubArgoNamespace && !slices.Contains(r.namespaces, w.Agent.HubNamespace) {
		r.namespaces = append(r.namespaces, w.Agent.HubNamespace)
	}
	return nil
}

func (r *restoredProject) addWindow(window rawjson.Object, agent string) error {
	clusters, _ := rawjson.Strings(window.Get("clusters"))
	window.Remove("clusters")
	rest, err := rawjson.Canonical(window.Bytes())
	if err != nil {
		return err
	}
	i := slices.IndexFunc(r.windows, func(known restoredWindow) bool { return bytes.Equal(known.rest, rest) })
	if i < 0 {
		i = len(r.windows)
		r.windows = append(r.windows, restoredWindow{rest: rest})
	}
	switch {
	case len(clusters) == 0:
	case slices.Equal(clusters, []string{inClusterName}):
		r.windows[i].clusters = append(r.windows[i].clusters, agent)
	default:
		return errors.New("a sync window has another cluster")
	}
	return nil
}

func (r *restoredProject) set(spec *rawjson.Object) {
	setAll := func(key string, list [][]byte) {
		if len(list) > 0 {
			spec.Set(key, rawjson.Join(list))
		}
	}
	setAll("destinations", r.destinations)
	setAll("destinationServiceAccounts", r.accounts)
	if len(r.namespaces) > 0 {
		setStrings(spec, "sourceNamespaces", r.namespaces)
	}
	var windows [][]byte
	for _, one := range r.windows {
		window := members(one.rest)
		setStrings(&window, "clusters", one.clusters)
		windows = append(windows, window.Bytes())
	}
	setAll("syncWindows", windows)
}

// destinationOnHub is the inverse of cluster.rewriteDestinations for one entry. An entry with a denied namespace names the
// server if it has one: a denied namespace ends the evaluation only if the server matches.
func destinationOnHub(d destination, agent Agent) ([]byte, error) {
	name, ok := renamed(d.name, inClusterName, agent.Name)
	server, ok2 := renamed(d.server, inClusterServer, agent.Server)
	if !ok || !ok2 {
		return nil, errors.New("destinations have another cluster")
	}
	if name == agent.Name && server == agent.Server && server != "" {
		if denies(d.namespace) {
			name = ""
		} else {
			server = ""
		}
	}
	setText(&d.entry, "name", name)
	setText(&d.entry, "server", server)
	return rawjson.Canonical(d.entry.Bytes())
}

// renamed returns a pattern with another name. It returns false if the pattern is of another cluster.
func renamed(pattern, from, to string) (string, bool) {
	switch pattern {
	case "":
		return "", true
	case from:
		return to, true
	case "!" + from:
		return "!" + to, true
	}
	return "", false
}

func appendNew(list [][]byte, one []byte) [][]byte {
	if slices.ContainsFunc(list, func(has []byte) bool { return bytes.Equal(has, one) }) {
		return list
	}
	return append(list, one)
}
