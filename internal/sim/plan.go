package sim

import (
	"math/rand/v2"
	"slices"

	"github.com/argocd-agent/argocd-agent/internal/engine"
)

// action is something that a user does or that breaks. Its numbers are drawn with the plan, so that leaving one out
// changes no other.
type action struct {
	at   engine.Time
	what string
	n    [4]uint32
}

// pick chooses from a list by one of the action's numbers; false: it is empty.
func pick[T any](list []T, n uint32) (T, bool) {
	if len(list) == 0 {
		var none T
		return none, false
	}
	return list[int(n)%len(list)], true
}

// actionType is a kind of action.
type actionType struct {
	name   string
	weight int
	fault  bool
	rare   int // percent of seeds in which it may occur at all; 0: the usual
	do     func(*world, action)
}

// usual is in how many percent of the seeds a kind of fault may occur: a world in which everything breaks at once hides
// what one fault alone would show.
const usual = 30

// plannedActions are those of worlds with one hub. The order counts: seeds draw from it.
func plannedActions() []actionType {
	return slices.Concat(hubActions, spokeActions, faultActions, denialActions, registrationActions, settingsActions,
		skewActions, crdActions, kindActions, childActions)
}

func actions() []actionType { return slices.Concat(plannedActions(), groupActions) }

// drawPlan draws what will happen, in the order of time.
func drawPlan(rng *rand.Rand, from []actionType) []action {
	var choice []actionType
	total := 0
	for _, a := range from {
		rare := a.rare
		if rare == 0 {
			rare = usual
		}
		if a.fault && rng.IntN(100) >= rare || !a.fault && rng.IntN(100) < 10 {
			continue
		}
		choice = append(choice, a)
		total += a.weight
	}
	length := (4 + engine.Time(rng.IntN(10))) * minute
	count := 10 + rng.IntN(50)
	plan := make([]action, 0, count)
	for range count {
		x := rng.IntN(total)
		for _, a := range choice {
			if x -= a.weight; x < 0 {
				plan = append(plan, action{at: 5*second + engine.Time(rng.Int64N(int64(length))), what: a.name,
					n: [4]uint32{rng.Uint32(), rng.Uint32(), rng.Uint32(), rng.Uint32()}})
				break
			}
		}
	}
	slices.SortStableFunc(plan, func(a, b action) int { return int(a.at - b.at) })
	return plan
}

// perform carries out an action.
func (w *world) perform(a action) {
	for _, known := range actions() {
		if known.name == a.what {
			if known.fault {
				w.seen[a.what] = true
			}
			w.tracef("--- %s", a.what)
			known.do(w, a)
			return
		}
	}
	panic("no such action: " + a.what)
}
