package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/argocd-agent/argocd-agent/lab"
)

// door is where an agent lets the controllers of its cluster use the hub's repo-server and Redis.
type door struct{ repoServer, redis string }

// sharedPassword is what clients of an agent's Redis have to give.
const sharedPassword = "of the spoke"

// sharedWorld is a world in which spokes have neither a repo-server nor a Redis of their own.
func sharedWorld(t *testing.T) (*world, map[string]door) {
	t.Helper()
	open := func() *lab.Lab { return lab.New(t, lab.Options{}) }
	if os.Getenv(lab.FolderVariable) != "" { // somebody tries one test again and again
		open = func() *lab.Lab { return lab.Get(t) }
	}
	l := open()
	w := newWorld(t, setup{lab: l, flags: []string{"--shared-mode-agents", "manag*,autonomous", "--shared-repo-server-address", l.Hub().RepoServer}, agents: []agentSetup{
		{name: "managed", cluster: "managed", mode: "managed"}, {name: "autonomous", cluster: "autonomous", mode: "autonomous"}}})
	t.Cleanup(w.close)
	doors := map[string]door{}
	for name, a := range w.agents {
		liveRights(t, a.spoke.Cluster)
		d := door{"127.0.0.1:" + w.freePort(t), "127.0.0.1:" + w.freePort(t)}
		doors[name] = d
		a.args = append(without(a.args, "--redis-addr", "--redis-password"),
			"--shared-repo-server-listen", d.repoServer, "--shared-redis-listen", d.redis, "--shared-redis-password", sharedPassword)
	}
	w.start(t)
	for name, a := range w.agents {
		w.slim(t, a, doors[name])
	}
	w.serveArgoCD(t)
	return w, doors
}

// slim takes away what a spoke shall not need, and tells its controllers where to ask instead.
func (w *world) slim(t testing.TB, a *agent, d door) {
	t.Helper()
	cluster := a.spoke.Name + "/"
	for _, component := range []string{"repo-server", "redis"} {
		if err := w.Kill(t.Context(), cluster+component); err != nil && os.Getenv(lab.FolderVariable) == "" {
			t.Fatal(err)
		}
	}
	if err := w.Restart(t.Context(), cluster+"application-controller", lab.Flag("--redis", d.redis), lab.Flag("--repo-server", d.repoServer),
		lab.Env("REDIS_PASSWORD", sharedPassword)); err != nil {
		t.Fatal(err)
	}
	if a.mode != "autonomous" {
		return
	}
	if err := w.Restart(t.Context(), cluster+"applicationset-controller", lab.Flag("--argocd-repo-server", d.repoServer)); err != nil {
		t.Fatal(err)
	}
}

// without takes flags and their values away.
func without(args []string, flags ...string) []string {
	var left []string
	for i := 0; i < len(args); i++ {
		if slices.Contains(flags, args[i]) {
			i++
			continue
		}
		left = append(left, args[i])
	}
	return left
}

// redisAt sends requests to a Redis, after AUTH, and returns the first line of each reply, or why there is none.
func redisAt(address, password string, requests ...[]string) ([]string, error) {
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	in := bufio.NewReader(conn)
	var replies []string
	for i, request := range append([][]string{{"AUTH", password}}, requests...) {
		var b strings.Builder
		fmt.Fprintf(&b, "*%d\r\n", len(request))
		for _, arg := range request {
			fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
		}
		if _, err := conn.Write([]byte(b.String())); err != nil {
			return replies, err
		}
		line, err := in.ReadString('\n')
		if err != nil {
			return replies, err
		}
		if i == 0 && !strings.HasPrefix(line, "+OK") {
			return nil, errors.New(line)
		}
		if i > 0 {
			replies = append(replies, strings.TrimSpace(line))
		}
		if strings.HasPrefix(line, "$") && !strings.HasPrefix(line, "$-1") {
			if _, err := in.ReadString('\n'); err != nil {
				return replies, err
			}
		}
	}
	return replies, nil
}

// bytesCodec lets a test say what it likes to a gRPC server.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

// askRepoServer asks for the directories of a repository at HEAD, or calls any other method with the same request.
func askRepoServer(t testing.TB, address, method, repository string) error {
	t.Helper()
	client, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	repo := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), repository)
	request := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), repo)
	request = protowire.AppendString(protowire.AppendTag(request, 3, protowire.BytesType), "HEAD")
	ctx, cancel := context.WithTimeout(t.Context(), *patience)
	defer cancel()
	var answer []byte
	return client.Invoke(ctx, "/repository.RepoServerService/"+method, request, &answer, grpc.ForceCodecV2(bytesCodec{}), grpc.WaitForReady(true))
}
