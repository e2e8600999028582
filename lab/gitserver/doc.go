// Package gitserver is the lab's Git hosting: bare repositories in a folder,
// served over real smart HTTP or HTTPS with basic authentication on a free
// loopback port, so that Argo CD fetches from it as it would from any host.
//
// A [Store] is the folder. It creates and opens repositories and knows the
// users; everything is kept on disk, so one process may serve a store while
// another one (a test) commits to it. A [Server] is the HTTP side of a store
// and holds no state of its own.
//
//	store, err := gitserver.OpenStore(dir)
//	store.SetUser("alice", "secret")
//	server, err := gitserver.Serve(store, gitserver.ServerOptions{})
//	defer server.Close()
//	store.CreateSamples(ctx, server.URL())
//
//	repo, err := store.Create(ctx, "mine", gitserver.RepoOptions{Sample: gitserver.SamplePlain})
//	sha, err := repo.Commit(ctx, "Scale up", map[string]string{"deployment.yaml": "..."})
//	sha, err = repo.Commit(ctx, "Signed", files, gitserver.On("dev"), gitserver.SignedBy(signer))
//	url := server.RepoURL("mine") // https://127.0.0.1:PORT/mine.git
//
// Reading a public repository needs no credentials, reading a private one and
// pushing to any does. RepoOptions.Users narrows a repository to some users.
//
// Commits are made with fixed names and dates, so the same history has the
// same hashes on every machine; signed ones differ by their generated key.
//
// The package runs the system's git, and gpg where something is signed
// (Debian packages git and gnupg).
package gitserver
