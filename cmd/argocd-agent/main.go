// Command argocd-agent connects Argo CD on a hub with Argo CD on workload clusters: `principal` runs on the hub, `agent`
// on each workload cluster.
//
// This package reads settings, refuses settings that contradict each other, and builds the Config of principal.Run or
// agent.Run.
package main

import (
	"context"
	"os"

	"github.com/argocd-agent/argocd-agent/internal/util/cmdline"
)

func main() {
	ctx, stop := untilSignal(context.Background(), os.Exit)
	stopTuning := tuneGC(os.Environ(), cgroupLimitFiles)
	err := run(ctx, os.Args[1:], os.Environ(), os.Stdout, os.Stderr)
	stopTuning()
	stop()
	os.Exit(cmdline.Report(os.Stderr, programName, err))
}
