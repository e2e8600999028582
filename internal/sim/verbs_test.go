package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/argocd-agent/argocd-agent/internal/engine"
	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// do carries out one command of a scenario.
func (s *script) do(line string) {
	s.t.Helper()
	words := strings.Fields(line)
	if words[0] == "world" {
		s.build(words[1:])
		return
	}
	if s.w == nil {
		s.fatal(line, "a scenario begins with its world")
	}
	switch verb, args := words[0], words[1:]; verb {
	case "hub":
		s.onHub(line, args)
	case "spoke":
		s.onSpoke(line, args)
	case "expect":
		s.expect(line, args)
	case "wait":
		s.w.run(s.w.now + duration(args[0]))
	case "settle":
		s.settle(line)
	case "partition":
		partition(s.w, action{n: [4]uint32{uint32(slices.Index(s.w.spokes, s.spoke(line, args[0]))), 4 * 299}})
		s.spoke(line, args[0]).partitionUntil = s.w.now + 24*hour
		s.w.run(s.w.now + minute)
	case "reconnect":
		s.spoke(line, args[0]).partitionUntil = 0
	case "crash":
		s.process(line, args[0]).crash()
	case "start":
		s.process(line, args[0]).start()
	case "clone":
		cloneCluster(s.w, action{n: [4]uint32{uint32(slices.Index(s.w.spokes, s.spoke(line, args[0]))), 4 * 299}})
	case "confirm":
		s.confirm(line, args)
	case "show":
		s.show(args[0])
	default:
		s.fatal(line, "no such command")
	}
}

// settle waits until both sides are equal.
func (s *script) settle(line string) {
	for range 60 {
		s.w.run(s.w.now + 30*second)
		if len(s.w.differences()) == 0 {
			return
		}
	}
	s.fatal(line, "the two sides do not become equal:\n%s", strings.Join(s.w.differences(), "\n"))
}

// confirm agrees to what is held for an agent: `confirm a`, or in one scope only: `confirm a appproject`.
func (s *script) confirm(line string, words []string) {
	agent := s.spoke(line, words[0]).agent.Name
	s.line("user: confirms what is held for " + strings.Join(words, " in scope "))
	s.w.held(func(h hold) {
		if h.agent == agent && (len(words) == 1 || h.scope == words[1]) {
			s.w.confirm(h)
		}
	})
}

func (s *script) onHub(line string, words []string) {
	w := s.w
	switch verb, args := words[0], words[1:]; verb {
	case "create":
		for _, word := range args {
			r := s.app(word)
			t := application(r.Namespace, r.Name, r.Namespace, w.nextRevision())
			addFinalizer(t, cascade)
			if w.hub.create(userName, kind.Applications, t) == nil {
				s.fatal(line, "refused")
			}
		}
	case "edit":
		w.editSpec(w.hub, s.app(args[0]), 7)
	case "assign": // assign a/app project
		w.hub.edit(userName, s.app(args[0]), func(t tree) { put(t, args[1], "spec", "project") })
	case "poison":
		w.hub.edit(userName, s.app(args[0]), func(t tree) { put(t, "poison", "spec", "source", "path") })
	case "cure":
		w.hub.edit(userName, s.app(args[0]), func(t tree) { put(t, "guestbook", "spec", "source", "path") })
	case "delete":
		w.deleteApplication(w.hub, serverName, s.app(args[0]), len(args) > 1 && args[1] == "cascade")
	case "sync":
		if !w.sync(s.app(args[0])) {
			s.fatal(line, "refused")
		}
	case "project":
		var destinations []any
		for _, agent := range args[1:] {
			destinations = append(destinations, tree{"name": agent, "namespace": "*"})
		}
		if r := ref(kind.AppProjects, w.hub.argo, args[0]); w.hub.st.get(r) == nil {
			w.hub.create(userName, kind.AppProjects, project(w.hub.argo, args[0], destinations, []any{"*"}))
		} else {
			w.hub.edit(userName, r, func(t tree) { put(t, destinations, "spec", "destinations") })
		}
	case "describe": // describe p1 text
		w.hub.edit(userName, ref(kind.AppProjects, w.hub.argo, args[0]), func(t tree) { put(t, args[1], "spec", "description") })
	case "unproject":
		w.hub.remove(userName, ref(kind.AppProjects, w.hub.argo, args[0]))
	case "repository":
		w.hub.create(userName, kind.Secrets, repository(w.hub.argo, args[0], args[1], "https://git/"+args[0]))
	case "backup":
		w.hub.backups = append(w.hub.backups, w.hub.st.snapshot())
	case "restore":
		w.restoreHub(w.hub.backups[len(w.hub.backups)-1])
	default:
		s.fatal(line, "no such command")
	}
}

func (s *script) onSpoke(line string, words []string) {
	w, sp := s.w, s.spoke(line, words[0])
	args := words[2:]
	local := func() kind.Ref { return ref(kind.Applications, sp.cluster.argo, args[0]) }
	switch words[1] {
	case "edit":
		ok := sp.cluster.edit(spokeUser, local(), func(t tree) { put(t, "hacked", "spec", "source", "targetRevision") })
		if !ok {
			s.fatal(line, "refused")
		}
	case "delete":
		w.deleteApplication(sp.cluster, spokeUser, local(), false)
	case "create":
		sp.cluster.create(spokeUser, kind.Applications, application(sp.cluster.argo, args[0], "in-cluster", w.nextRevision()))
	case "sync":
		sp.cluster.edit(spokeUser, local(), func(t tree) { t["operation"] = tree{"sync": tree{"revision": "HEAD"}} })
	case "empty":
		w.emptySpoke(sp)
	case "burst":
		n, _ := strconv.Atoi(args[1])
		for i := range n {
			w.after(engine.Time(i)*minute/engine.Time(n), func() {
				sp.cluster.edit(controllerName, local(), func(t tree) { put(t, fmt.Sprint(i), "status", "summary", "burst") })
			})
		}
	default:
		s.fatal(line, "no such command")
	}
}

// show describes an Application on both sides.
func (s *script) show(word string) {
	r := s.app(word)
	s.line("hub    " + describeApp(s.w.hub.st.get(r)))
	if sp := s.w.spokeOf(r.Namespace); sp != nil {
		s.line("spoke  " + describeApp(sp.cluster.st.get(ref(kind.Applications, sp.cluster.argo, r.Name))))
	}
}

func describeApp(o *kind.Object) string {
	if o == nil {
		return "none"
	}
	t := decode(o)
	out := digText(t, "spec", "source", "targetRevision") + ", " + or(digText(t, "status", "sync", "status"), "no status")
	if o.IsDeleting() {
		out += ", deleting"
	}
	if t["operation"] != nil {
		out += ", operation pending"
	}
	if phase := digText(t, "status", "operationState", "phase"); phase != "" {
		out += ", last operation " + phase
	}
	if message := condition(t, "AgentError"); message != "" {
		out += ", AgentError: " + message
	}
	return out
}

func or(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

// expect holds a scenario to its outcome.
func (s *script) expect(line string, words []string) {
	s.t.Helper()
	ok, detail := s.holds(line, words)
	if !ok {
		s.fatal(line, "%s", detail)
	}
	s.line("as expected: " + strings.Join(words, " "))
}

func (s *script) holds(line string, words []string) (bool, string) {
	w := s.w
	switch words[0] {
	case "equal":
		found := w.differences()
		return len(found) == 0, strings.Join(found, "\n")
	case "runs": // runs a/app 1
		r := s.app(words[1])
		n := s.operations[r.Namespace+":"+s.spoke(line, r.Namespace).cluster.argo+"/"+r.Name]
		return strconv.Itoa(n) == words[2], fmt.Sprintf("%d", n)
	case "spoke": // spoke a has app, spoke a lacks app
		o := s.spoke(line, words[1]).cluster.st.get(ref(kind.Applications, s.spoke(line, words[1]).cluster.argo, words[3]))
		return (o != nil) == (words[2] == "has"), "it does not"
	case "unmarked": // unmarked a app: it is none of ours
		o := s.spoke(line, words[1]).cluster.st.get(ref(kind.Applications, s.spoke(line, words[1]).cluster.argo, words[2]))
		return o != nil && !ownedByAgent(o), "it is gone, or marked"
	case "hub": // hub has a/app
		return (w.hub.st.get(s.app(words[2])) != nil) == (words[1] == "has"), "it does not"
	case "proven": // proven: both ends have found every scope equal a moment ago
		before := len(w.violations)
		w.checkInSync()
		found := w.violations[before:]
		w.violations = w.violations[:before]
		return len(found) == 0, strings.Join(found, "\n")
	case "project": // project a has p1
		o := s.spoke(line, words[1]).cluster.st.get(ref(kind.AppProjects, s.spoke(line, words[1]).cluster.argo, words[3]))
		return (o != nil) == (words[2] == "has"), "it does not"
	case "secret": // secret a has repo
		o := s.spoke(line, words[1]).cluster.st.get(ref(kind.Secrets, s.spoke(line, words[1]).cluster.argo, words[3]))
		return (o != nil) == (words[2] == "has"), "it does not"
	case "workloads": // workloads a app: what it deployed is there
		_, there := s.spoke(line, words[1]).ctl.workloads[s.spoke(line, words[1]).cluster.argo+"/"+words[2]]
		return there, "they are gone"
	case "error": // error a/app: shown as a condition
		o := w.hub.st.get(s.app(words[1]))
		return o != nil && condition(decode(o), "AgentError") != "", "nothing is shown"
	case "pending": // pending a/app: its operation still waits
		o := w.hub.st.get(s.app(words[1]))
		return o != nil && o.Get("operation") != nil, "nothing is pending"
	case "clones": // clones of a have nothing of ours
		for _, p := range s.spoke(line, words[2]).clones {
			if list := p.cluster.applications(ownedByAgent); len(list) > 0 {
				return false, fmt.Sprint(list)
			}
		}
		return true, ""
	case "held": // held a
		for _, p := range w.principals {
			if st, _ := p.reconciler.Status(words[1]); len(st.RemoteHolds) > 0 {
				return true, ""
			}
		}
		return false, "nothing is held"
	case "no": // no deletions: our agents have deleted nothing
		return len(s.fates) == 0, strings.Join(s.fates, "\n")
	case "writes": // writes below 100
		most, _ := strconv.Atoi(words[2])
		return w.writes < most, fmt.Sprintf("%d writes", w.writes)
	}
	s.fatal(line, "no such expectation")
	return false, ""
}
