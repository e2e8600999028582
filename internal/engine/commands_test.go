package engine

import (
	"fmt"
	"strconv"
	"strings"
)

// run carries out a transcript's command to one side.
func (s *side) run(args []string) error {
	verb, args := args[0], args[1:]
	if f := sideVerbs[verb]; f != nil {
		return f(s, args)
	}
	if f := objectVerbs[verb]; f != nil {
		if len(args) < 2 {
			return fmt.Errorf("needs a scope and a key")
		}
		for _, key := range expand(args[1]) {
			if err := f(s, args[0], key, args[2:]); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("no such command")
}

// expand turns app1..3 into three keys.
func expand(arg string) []Key {
	from, to, ok := strings.Cut(arg, "..")
	if !ok {
		return []Key{parseKey(arg)}
	}
	stem := strings.TrimRight(from, "0123456789")
	a, _ := strconv.Atoi(strings.TrimPrefix(from, stem))
	b, _ := strconv.Atoi(to)
	var keys []Key
	for ; a <= b; a++ {
		keys = append(keys, parseKey(stem+strconv.Itoa(a)))
	}
	return keys
}

func parseKey(s string) Key {
	if ns, name, ok := strings.Cut(s, "/"); ok {
		return Key{ns, name}
	}
	return Key{Name: s}
}

var sideVerbs = map[string]func(*side, []string) error{
	"restart": func(s *side, _ []string) error {
		s.w.dropSession(s.w.session)
		s.cfg.KnownStore, s.cfg.StoreUntrusted = s.peer.Status().Other, s.peer.Status().StoreHoldID != ""
		s.cfg.KnownGeneration = s.peer.Generation()
		s.boot()
		s.w.epoch.Incarnation++
		s.w.hub.pipe, s.w.agent.pipe = nil, nil
		s.w.work()
		return nil
	},
	"store": func(s *side, args []string) error { // the API server is another, or as it was
		revision, err := strconv.ParseUint(args[1], 10, 64)
		s.store.id = Store{UID: args[0], Revision: revision, Mark: s.store.id.Mark}
		return err
	},
	"mark": func(s *side, args []string) error { // the history mark in the store; with "lost", it was restored
		number, err := strconv.ParseUint(args[0], 10, 64)
		mark := HistoryMark{Record: "agent-uid", Number: number}
		s.store.id.Mark = mark
		if len(args) == 1 {
			s.do(Marked{Mark: mark, Revision: s.peer.Status().Unmarked})
		}
		return err
	},
	"promoted": func(s *side, args []string) error { // the generation of the hub, and what it has received of which store
		s.cfg.Welcome.PrincipalUID = "identity"
		n, err := strconv.ParseUint(args[0], 10, 64)
		s.cfg.Welcome.HubGeneration, s.cfg.Welcome.Predecessor = n, Store{}
		if len(args) > 2 {
			n, err = strconv.ParseUint(args[2], 10, 64)
			s.cfg.Welcome.Predecessor = Store{UID: args[1], Revision: n}
		}
		s.boot()
		s.do(Tick{})
		return err
	},
	"lags": func(s *side, args []string) error { // a process that has seen its store only so far; 0: all of it
		n, err := strconv.ParseUint(args[0], 10, 64)
		s.store.lag = n
		return err
	},
	"as": func(s *side, args []string) error { // what the agent claims to be
		switch args[0] {
		case "mode":
			s.cfg.Mode = args[1]
		case "mapping":
			s.cfg.Mapping = args[1]
		case "cluster":
			s.cfg.Hello.ClusterUID = args[1]
		case "known":
			s.cfg.KnownCluster = args[1]
		case "scope":
			s.cfg.Scopes = append(s.cfg.Scopes, ScopeConfig{Name: args[1], Role: Owner})
		default:
			return fmt.Errorf("as what?")
		}
		s.boot()
		s.do(Tick{})
		return nil
	},
	"slow":   func(s *side, _ []string) error { s.store.slow = true; return nil },
	"finish": func(s *side, _ []string) error { s.store.slow = false; s.store.drain(); return nil },
	"hesitates": func(s *side, _ []string) error {
		s.slow = true
		return nil
	},
	"begins": func(s *side, _ []string) error { s.slow = false; s.do(Begin{}); return nil },
	"confirm": func(s *side, args []string) error {
		id := s.held[strings.TrimPrefix(args[0], "store")]
		if id == "" {
			return fmt.Errorf("nothing is held")
		}
		s.do(Confirmed{id})
		return nil
	},
	"hears-hello": func(s *side, args []string) error { // of a clone with an incarnation of its own
		session, _ := strconv.ParseUint(args[0], 10, 64)
		incarnation, err := strconv.ParseUint(args[1], 10, 64)
		s.live[session] = true
		s.do(Received{session, Hello{Epoch: Epoch{Incarnation: incarnation}, ClusterUID: args[2], Mode: s.cfg.Mode,
			Mapping: s.cfg.Mapping, Store: s.other.store.id, Protocol: Range{1, 9}, Projection: Range{1, 9}}})
		return err
	},
	"loses-connection": func(s *side, args []string) error {
		n, err := strconv.ParseUint(args[0], 10, 64)
		s.do(Disconnected{n})
		return err
	},
	"message": func(s *side, args []string) error { // what happens to messages from this side
		switch args[0] {
		case "pass":
			s.deliverOne()
		case "lost":
			s.pipe = s.pipe[1:]
		case "doubled":
			s.pipe = append(s.pipe[:1:1], s.pipe...)
		case "overtaken":
			s.pipe[0], s.pipe[1] = s.pipe[1], s.pipe[0]
		case "delayed": // behind all others
			s.pipe = append(s.pipe[1:], s.pipe[0])
		case "kept": // for later
			kept[s.name] = s.pipe[0]
		case "comes-late":
			s.other.do(Received{kept[s.name].session, kept[s.name].message})
		default:
			return fmt.Errorf("what about the message?")
		}
		return nil
	},
}

// kept holds a message back for a later play; transcripts run one by one.
var kept = map[string]envelope{}

var objectVerbs = map[string]func(s *side, scope string, key Key, args []string) error{
	// A user or controller writes: as the owner, or behind our back.
	"put": func(s *side, scope string, key Key, args []string) error {
		s.store.put(scope, key, func(o *object) {
			o.content = args[0]
			if size, ok := strings.CutPrefix(args[0], "bytes:"); ok {
				n, _ := strconv.Atoi(size)
				o.content = strings.Repeat("x", n)
			}
			for _, arg := range args[1:] {
				if needs, ok := strings.CutPrefix(arg, "needs="); ok {
					o.needs = parseKey(needs)
				}
				if extra, ok := strings.CutPrefix(arg, "extra="); ok {
					o.extra = extra
				}
			}
		})
		return nil
	},
	"delete": func(s *side, scope string, key Key, _ []string) error { s.store.delete(scope, key); return nil },
	"misses": func(s *side, scope string, key Key, _ []string) error { // gone when it looked again
		delete(s.store.of(scope), key)
		s.store.story.owner(s.store, scope, key, "")
		s.do(Withdraw{Scope: scope, Key: key})
		return nil
	},
	"refuses": func(s *side, scope string, key Key, args []string) error {
		s.store.refuse[scope+" "+key.String()] = refusal{Code(args[0]), strings.Join(args[1:], " ")}
		return nil
	},
	"accepts": func(s *side, scope string, key Key, _ []string) error {
		delete(s.store.refuse, scope+" "+key.String())
		return nil
	},
	"normalises": func(s *side, scope string, key Key, _ []string) error {
		s.store.normalise[scope] = key.Name
		return nil
	},
	"prunes": func(s *side, scope string, key Key, _ []string) error { // the API server drops this field: "nothing" from now on
		s.store.prune[scope] = strings.TrimPrefix(key.Name, "nothing")
		return nil
	},
	"rechecks": func(s *side, scope string, key Key, _ []string) error {
		if key.Name == "all" {
			key = Key{}
		}
		s.do(Recheck{scope, key})
		return nil
	},
	"fights": func(s *side, scope string, key Key, args []string) error {
		s.store.fight[scope+" "+key.String()] = args[0]
		return nil
	},
	"sees": func(s *side, scope string, key Key, _ []string) error { // a watch event without a change
		s.do(s.store.inputFor(scope, key))
		return nil
	},
	"view": func(s *side, scope string, key Key, args []string) error {
		s.store.alarmed[scope] = key.Name != "complete"
		s.do(View{Scope: scope, Complete: key.Name == "complete", Reason: strings.Join(args, " ")})
		return nil
	},
	"shows": func(s *side, scope string, key Key, _ []string) error {
		o := s.store.of(scope)[key]
		if o == nil {
			s.w.trace("%-5s   has no %s %s", s.name, scope, key)
			return nil
		}
		s.w.trace("%-5s   has %s %s=%s", s.name, scope, key, short(o.content))
		return nil
	},
}
