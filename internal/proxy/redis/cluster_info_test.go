package redis

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"
)

// argoClusterInfo has the fields that Argo CD decodes.
type argoClusterInfo struct {
	ConnectionState struct {
		Status     string
		Message    string
		ModifiedAt *time.Time `json:"attemptedAt"`
	}
	ServerVersion string
	CacheInfo     struct {
		ResourcesCount    int64
		APIsCount         int64 `json:"apisCount"`
		LastCacheSyncTime *time.Time
	}
	ApplicationsCount int64
	APIVersions       []string `json:"apiVersions"`
}

func TestClusterInfo_FollowsAgents(t *testing.T) {
	w := newWorld(t, nil)
	spokeInfo := `{"connectionState":{"status":"Successful","message":"","attemptedAt":"2026-01-01T00:00:00Z"},"serverVersion":"1.35",` +
		`"cacheInfo":{"resourcesCount":300,"apisCount":61,"lastCacheSyncTime":"2026-01-01T00:00:00Z"},"applicationsCount":99,"apiVersions":["v1"],"new":1}`
	zipped, err := zip([]byte(spokeInfo))
	if err != nil {
		t.Fatal(err)
	}
	w.spokes["w1"].do("SET", "cluster|info|https://kubernetes.default.svc|1.8.3.gz", string(zipped))
	w.agents["w2"].mute.Store(true)

	since := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	var mu sync.Mutex
	states := []ClusterState{
		{Agent: "w1", Server: "https://proxy:9090?agentName=w1", Connected: true, Since: since, Applications: 7},
		{Agent: "w2", Server: "https://proxy:9090?agentName=w2", Connected: true, Since: since, Applications: 3},
	}
	info := NewClusterInfo(w.hub.endpoint(), w.Dial, func() []ClusterState {
		mu.Lock()
		defer mu.Unlock()
		return append([]ClusterState(nil), states...)
	}, true, nil)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- info.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	client := w.user()
	read := func(agent string) (is argoClusterInfo) {
		reply := client.raw("GET", "cluster|info|https://proxy:9090?agentName="+agent+"|1.8.3.gz")
		if reply == nil {
			return is
		}
		plain, err := unzip(reply, 1<<20, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(plain, &is); err != nil {
			t.Fatalf("%s: %v", plain, err)
		}
		return is
	}
	eventually(t, "the entry has what the agent's Argo CD says", func() bool { return read("w1").ServerVersion == "1.35" })
	is := read("w1")
	if is.ConnectionState.Status != "Successful" || is.ConnectionState.Message != "Agent: 'w1' is connected with principal" ||
		!is.ConnectionState.ModifiedAt.Equal(since) || is.CacheInfo.ResourcesCount != 300 || is.CacheInfo.APIsCount != 61 ||
		is.CacheInfo.LastCacheSyncTime == nil || is.ApplicationsCount != 7 || is.APIVersions[0] != "v1" {
		t.Errorf("%+v", is)
	}
	// An agent that does not respond has an entry, too.
	eventually(t, "every agent has an entry", func() bool { return read("w2").ConnectionState.Status != "" })
	if is := read("w2"); is.ConnectionState.Status != "Successful" || is.ApplicationsCount != 3 {
		t.Errorf("%+v", is)
	}
	ttl := strings.TrimPrefix(w.hub.do("TTL", "cluster|info|https://proxy:9090?agentName=w1|1.8.3.gz"), ":")
	if ttl != "60" && ttl != "59" && ttl != "58" {
		t.Errorf("the entry lives %s s", ttl)
	}

	mu.Lock()
	states[0].Connected = false
	mu.Unlock()
	info.Changed("w1")
	eventually(t, "the entry is Failed", func() bool { return read("w1").ConnectionState.Status == "Failed" })
	is = read("w1")
	if is.ConnectionState.Message != "Agent: 'w1' is disconnected with principal" || is.ServerVersion != "1.35" {
		t.Errorf("%+v", is)
	}

	// The entry is written again after a restart of Redis.
	w.hub.Stop()
	w.hub.Run()
	info.Changed("w1")
	client = w.user()
	eventually(t, "the entry is written again", func() bool {
		info.Changed("w1")
		return read("w1").ConnectionState.Status == "Failed"
	})
}

func TestClusterEntry_AgentCannotHideConnectionState(t *testing.T) {
	state := ClusterState{Agent: "w1", Connected: false, Applications: 1}
	for _, known := range []string{
		"", "null", "[]", "{", `{"connectionState":{"status":"Successful"},"applicationsCount":99}`,
	} {
		entry, err := clusterEntry(state, []byte(known))
		if err != nil {
			t.Fatalf("%s: %v", known, err)
		}
		var is argoClusterInfo
		if err := json.Unmarshal(entry, &is); err != nil {
			t.Fatalf("%s: %v", entry, err)
		}
		if is.ConnectionState.Status != "Failed" || is.ApplicationsCount != 1 || is.ConnectionState.ModifiedAt != nil {
			t.Errorf("%s became %s", known, entry)
		}
	}
}
