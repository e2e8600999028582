// Package gitserver serves bare repositories in a directory over smart HTTP or HTTPS with basic authentication on a
// loopback port. Argo CD fetches from it as from any host.
//
// A [Store] is the directory. It creates and opens repositories and has the users. Everything is stored on disk, so
// that one process can serve a store while another (a test) commits to it. A [Server] is the HTTP server of a store and
// has no state.
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
// Reading a public repository needs no credentials. Reading a private one, and pushing, does. RepoOptions.Users limits
// a repository to some users.
//
// Commits have fixed names and dates, so that the same history has the same hashes on every machine. Signed commits
// differ by their generated key.
//
// The package runs git and, for signatures, gpg of the system (Debian packages git and gnupg).
package gitserver
