// Command argocd-agent connects Argo CD on a hub with Argo CD on workload
// clusters: `principal` runs on the hub, `agent` on each workload cluster.
//
// This package reads settings, refuses those that contradict each other, and
// turns the rest into the Config of an assembly, which does the work.
package main

import (
	"context"
	"os"
)

func main() {
	ctx, stop := untilSignal(context.Background(), os.Exit)
	leave := tuneGC(os.Environ(), cgroupLimitFiles)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	leave()
	stop()
	os.Exit(report(os.Stderr, err))
}
