package sim

import (
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// configuration compares a project, a repository or a ConfigMap of the hub with an agent's replica.
func (d *differ) configuration(s *spoke, from kind.Ref, hub, replica *kind.Object) {
	at := short(from) + " for " + s.agent.Name
	if replica == nil {
		d.add("%s is missing", at)
		return
	}
	if ignoredLabel(replica) || !ownedByAgent(replica) && s.w.shape.policy.AdoptNever {
		return
	}
	if !ownedByAgent(replica) {
		d.add("%s has a namesake there", at)
		return
	}
	h, c := decode(hub), decode(replica)
	switch from.Resource {
	case kind.AppProjects:
		for _, field := range []string{"sourceRepos", "description"} {
			if a, b := text(dig(h, "spec", field)), text(dig(c, "spec", field)); a != b {
				d.add("%s: %s %s is %s there", at, field, a, b)
			}
		}
		if dig(c, "spec", "roles") != nil {
			d.add("%s has roles there", at)
		}
		for _, dest := range digList(c, "spec", "destinations") {
			if digText(dest, "name") != "in-cluster" {
				d.add("%s permits %s there", at, text(dest))
			}
		}
		if len(digList(c, "spec", "destinations")) == 0 {
			d.add("%s permits nothing there", at)
		}
	default:
		if a, b := text(h["data"]), text(c["data"]); a != b {
			d.add("%s: data %s is %s there", at, a, b)
		}
	}
}

// autonomous compares what an agent has with its copies on the hub.
func (d *differ) autonomous(w *world, s *spoke) {
	meant := map[kind.Ref]bool{}
	for _, r := range []kind.Resource{kind.AppProjects, kind.Applications} {
		for _, o := range s.cluster.st.list(r) {
			from := refOf(r, o)
			if !shownBy(s, from, o) {
				continue
			}
			to := copyOnHub(s, from)
			meant[to] = true
			replica := w.hub.st.get(to)
			at := short(from) + " of " + s.agent.Name
			switch {
			case replica == nil:
				d.add("%s is missing on the hub", at)
			case ignoredLabel(replica):
			case replica.Annotation(agentKey) != s.agent.Name || replica.Annotation(sourceKey) != o.UID():
				d.add("%s is something else on the hub", at)
			case r == kind.AppProjects:
				d.hubProject(s, at, decode(o), decode(replica))
			default:
				d.hubApplication(s, at, decode(o), decode(replica))
			}
		}
		for _, o := range w.hub.st.list(r) {
			there := refOf(r, o)
			if r == kind.AppProjects && w.hub.uses(o.Name()) {
				continue
			}
			if o.Annotation(agentKey) == s.agent.Name && !meant[there] && !ignoredLabel(o) {
				d.add("%s on the hub has gone at %s", short(there), s.agent.Name)
			}
		}
	}
}

func (d *differ) hubProject(s *spoke, at string, own, replica tree) {
	if a, b := text(dig(own, "spec", "description")), text(dig(replica, "spec", "description")); a != b {
		d.add("%s: description %s is %s on the hub", at, a, b)
	}
	if ns := text(dig(replica, "spec", "sourceNamespaces")); ns != text([]any{s.agent.HubNamespace}) {
		d.add("%s is open to namespaces %s", at, ns)
	}
	if has := dig(replica, "spec", "roles") != nil; has != (s.agent.Allow.Roles && dig(own, "spec", "roles") != nil) {
		d.add("%s: roles on the hub are %v", at, has)
	}
	for _, dest := range digList(replica, "spec", "destinations") {
		if digText(dest, "name") != s.agent.Name || dig(dest, "server") != nil {
			d.add("%s permits %s on the hub", at, text(dest))
		}
	}
}

func (d *differ) hubApplication(s *spoke, at string, own, replica tree) {
	if dig(replica, "metadata", "deletionTimestamp") != nil {
		d.add("%s is deleting on the hub", at)
	}
	d.conditions(at, replica)
	want := copied(own).(tree)
	project := digText(own, "spec", "project")
	if project == "" {
		project = "default"
	}
	put(want, hubProject(s, project), "spec", "project")
	if a, b := plainSpec(s, want, s.agent.Name), plainSpec(s, replica, ""); a != b {
		d.add("%s: spec %s is %s on the hub", at, a, b)
	}
	refused := !s.agent.Allow.Notifications
	if refused && digText(replica, "metadata", "annotations", subscription) != "" {
		d.add("%s is subscribed on the hub", at)
	}
	d.metadata(at, own, replica, func(key string) bool { return key == "hub-only" || refused && key == subscription })
	d.status(at, replica, own)
}
