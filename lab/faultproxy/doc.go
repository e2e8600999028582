// Package faultproxy injects faults between two real components of the lab.
//
// A [Link] forwards TCP connections to a service. It can cut, stall, delay, throttle or reset them:
//
//	link, err := faultproxy.New("127.0.0.1:6379")
//	defer link.Close()
//	client := dial(link.Addr())
//	link.Cut(faultproxy.Refuse)    // connections are reset, new ones refused
//	link.Cut(faultproxy.Blackhole) // nothing arrives, connections stay open
//	link.Restore()
//	link.Delay(50*time.Millisecond, 10*time.Millisecond)
//	link.Throttle(64 << 10)
//	link.Reset()    // reset what is open
//	link.HalfOpen() // what is open stays open and is dead; new connections work
//	link.Counters() // bytes in each direction, connections
//
// An [API] stands in front of a Kubernetes API server. It understands
// requests, counts them and answers some of them itself:
//
//	api, err := faultproxy.NewAPI(faultproxy.APIOptions{Target: url, TargetCA: pem, Certificate: cert})
//	defer api.Close()
//	fault := api.Add(faultproxy.Rule{
//		Match: faultproxy.Match{Verbs: []string{"update", "patch"}, Path: regexp.MustCompile(`/applications/`)},
//		Do:    faultproxy.Conflict(),
//		Times: 3,
//	})
//	fault.Hits(); fault.Remove()
//	api.ExpireWatches(faultproxy.Match{})                     // 410 Gone inside the open watches
//	api.Count(faultproxy.Match{Verbs: faultproxy.WriteVerbs}) // how many writes there were
//
// Watches stream, and upgrades (exec, attach, port-forward by WebSocket or
// SPDY) pass. The proxy ends TLS, so callers prove who they are by bearer
// token, not by client certificate.
//
// Every function may be called at any time from any goroutine; Close returns
// when all goroutines of the proxy have ended.
package faultproxy
