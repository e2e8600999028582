package kube

import (
	"strconv"
	"time"

	"github.com/argocd-agent/argocd-agent/internal/kind"
	"github.com/argocd-agent/argocd-agent/internal/rawjson"
)

const leaseTime = "2006-01-02T15:04:05.000000Z"

// LeaseSpec returns the spec of a Lease that its holder renews now. An empty holder gives the Lease up.
func LeaseSpec(holder string, duration time.Duration) map[string]any {
	spec := map[string]any{"holderIdentity": holder, "leaseDurationSeconds": int(duration.Seconds()), "renewTime": time.Now().UTC().Format(leaseTime)}
	if holder == "" {
		spec["holderIdentity"] = nil // an API server does not accept an empty name
	}
	return spec
}

// LeaseHolder returns the holder of a Lease, or "", and the duration that it wrote.
func LeaseHolder(o *kind.Object) (holder string, duration time.Duration) {
	seconds, _ := strconv.ParseUint(string(o.Get("spec", "leaseDurationSeconds")), 10, 16)
	return rawjson.Text(o.Get("spec", "holderIdentity")), time.Duration(seconds) * time.Second
}

// LeaseRenewed returns when the holder of a Lease has renewed it, by its own clock. It is zero if that is unknown.
func LeaseRenewed(o *kind.Object) time.Time {
	at, _ := time.Parse(leaseTime, rawjson.Text(o.Get("spec", "renewTime"))) // zero if there is none
	return at
}
