package main

import "strings"

// renamed has pairs of old and new parts of figure names, so that a revision with old names can be the base of a
// comparison. Remove it when no such revision is compared any longer.
var renamed = []string{
	"key stroke, nobody else, ", "key stroke without load, ",
	"lists meanwhile", "lists during the measurement",
	"key stroke beside them, ", "key stroke under load, ",
	"key strokes beside 100 followers of logs and a list of 50 MB", "key strokes with 100 log followers and a list of 50 MB",
	"rest: what lives in the principal for each agent, beside what it has of the Applications without one", "rest: principal's live memory for each agent, without Applications",
	"spec of others meanwhile", "spec of other agents",
	": writes that the principal tries meanwhile", ": write attempts of the principal",
	"all agents proven equal", "all agents in sync",
	"all agents back and proven equal", "all agents in sync",
	"empty spokes: that, over what writing the Applications on the hub took", "empty spokes: ratio to writing the Applications on the hub",
	"emptied spokes: that, over what writing the Applications on the hub took", "emptied spokes: ratio to writing the Applications on the hub",
	"all Applications are there", "all Applications replicated",
	"done, over what asking for it took", "done, ratio to requesting it",
	"a tenth of the agents hang, and answer pings", "a tenth of the agents unresponsive",
	"a tenth of the agents read one message a second", "a tenth of the agents read slowly",
	"a tenth of the agents are swallowed by their links", "a tenth of the links blackholed",
	"agents that hang, and answer pings: cut after", "unresponsive agents: disconnected after",
	"agents that hang, and answer pings: the last is cut after", "unresponsive agents: last disconnected after",
	"agents that hang, and answer pings: principal's memory until then over before", "unresponsive agents: principal's memory, ratio to before",
	"agents that hang, and answer pings: ", "unresponsive agents: ",
	"principal's memory over before", "principal's memory, ratio to before",
	"principal's memory, most over before", "principal's memory, maximum ratio to before",
	", median over when all are well", ", median, ratio to normal",
	", 99th percentile over when all are well", ", 99th percentile, ratio to normal",
	"spec of the others", "spec of other agents",
	"status of the others", "status of other agents",
	", of what it is directly", ", share of direct",
	", more than directly", ", added latency",
	", directly", ", direct",
	", asked for each time", ", not cached",
	", kept on the hub", ", cached on the hub",
	"GET with a connection of its own", "GET with a new connection",
	", principal's CPU for each", ", principal's CPU per request",
	": its metric says so", ": metric reports it",
	": writes that wait in the principal", ": queued writes of the principal",
	": after its end everything has arrived, none lost", ": everything arrived after the end, none lost",
	": writes on the hub after it, for each Application that changed", ": writes on the hub afterwards per changed Application",
	": sessions that ended", ": ended sessions",
	"reconciledAt of every Application moves", "reconciledAt of every Application changes",
	"requests that the hub could not serve, so far", "unavailable responses of the hub",
	"principal's memory in the last quarter over the second", "principal's memory, last quarter to second",
}

// currentName returns the current name of a figure of an older revision.
func currentName(name string) string {
	for i := 0; i < len(renamed); i += 2 {
		name = strings.ReplaceAll(name, renamed[i], renamed[i+1])
	}
	return name
}
