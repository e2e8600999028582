package gitserver

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// The two services of smart HTTP.
const (
	uploadPack  = "git-upload-pack"  // fetch
	receivePack = "git-receive-pack" // push
)

// handler routes the three requests of smart HTTP: list references, fetch, push.
func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{repo}/info/refs", func(w http.ResponseWriter, r *http.Request) {
		service := r.URL.Query().Get("service")
		if service != uploadPack && service != receivePack {
			http.Error(w, "this server speaks smart HTTP only: use git 1.6.6 or newer", http.StatusForbidden)
			return
		}
		s.withRepo(w, r, service, s.advertise)
	})
	for _, service := range []string{uploadPack, receivePack} {
		mux.HandleFunc("POST /{repo}/"+service, func(w http.ResponseWriter, r *http.Request) {
			s.withRepo(w, r, service, s.exchange)
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !s.begin() {
			http.Error(w, "the Git server is closing", http.StatusServiceUnavailable)
			return
		}
		defer s.requests.Done()
		mux.ServeHTTP(w, r)
	})
}

type serviceFunc func(w http.ResponseWriter, r *http.Request, repo *Repo, service string)

// withRepo finds the repository and authorizes the request before it calls next.
func (s *Server) withRepo(w http.ResponseWriter, r *http.Request, service string, next serviceFunc) {
	repo, err := s.store.Open(strings.TrimSuffix(r.PathValue("repo"), ".git"))
	if err != nil {
		http.Error(w, fmt.Sprintf("%v\nthe repositories are: %s", err, strings.Join(s.store.Names(), ", ")), http.StatusNotFound)
		return
	}
	status, err := s.authorise(r, repo, service == receivePack)
	if err != nil {
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Basic realm="lab", charset="UTF-8"`)
		}
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Cache-Control", "no-cache")
	next(w, r, repo, service)
}

// authorise returns nil if the request is permitted, or the status of the response. Wrong credentials are rejected even
// if none are needed, so that a test of wrong credentials cannot pass by accident.
func (s *Server) authorise(r *http.Request, repo *Repo, write bool) (int, error) {
	access, err := repo.Access()
	if err != nil {
		return http.StatusInternalServerError, err
	}
	user, password, given := r.BasicAuth()
	if !given {
		if access.Private || write {
			return http.StatusUnauthorized, errors.New("user name and password required")
		}
		return 0, nil
	}
	users, err := s.store.Users()
	if err != nil {
		return http.StatusInternalServerError, err
	}
	if want, known := users[user]; !known || !sameSecret(want, password) {
		return http.StatusUnauthorized, errors.New("wrong user name or password")
	}
	if len(access.Users) > 0 && (access.Private || write) && !slices.Contains(access.Users, user) {
		return http.StatusForbidden, fmt.Errorf("user %s may not use the repository %s", user, repo.name)
	}
	return 0, nil
}

func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// advertise lists the references of the repository.
func (s *Server) advertise(w http.ResponseWriter, r *http.Request, repo *Repo, service string) {
	w.Header().Set("Content-Type", "application/x-"+service+"-advertisement")
	out := &response{w: w}
	if !slices.Contains(strings.Split(r.Header.Get("Git-Protocol"), ":"), "version=2") {
		// Older protocols start with the name of the service and a flush packet.
		line := "# service=" + service + "\n"
		out.prefix = fmt.Sprintf("%04x%s0000", len(line)+4, line)
	}
	s.runService(r, repo, service, nil, out, "--stateless-rpc", "--advertise-refs")
}

// exchange forwards the request to git and returns its response.
func (s *Server) exchange(w http.ResponseWriter, r *http.Request, repo *Repo, service string) {
	if want := "application/x-" + service + "-request"; r.Header.Get("Content-Type") != want {
		http.Error(w, "content type must be "+want, http.StatusUnsupportedMediaType)
		return
	}
	// git can respond before it has read the whole pack.
	_ = http.NewResponseController(w).EnableFullDuplex() // not needed for HTTP/2, which returns an error
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, "the request is not gzip: "+err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	w.Header().Set("Content-Type", "application/x-"+service+"-result")
	s.runService(r, repo, service, body, &response{w: w}, "--stateless-rpc")
}

// runService runs a service of git for the repository.
func (s *Server) runService(r *http.Request, repo *Repo, service string, in io.Reader, out *response, args ...string) {
	git, err := lookProgram("git")
	if err != nil {
		http.Error(out.w, err.Error(), http.StatusInternalServerError)
		return
	}
	args = append([]string{strings.TrimPrefix(service, "git-")}, args...)
	cmd := exec.CommandContext(r.Context(), git, append(args, repo.dir)...)
	cmd.Env = gitEnv("GIT_PROTOCOL=" + r.Header.Get("Git-Protocol"))
	cmd.WaitDelay = 10 * time.Second
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, &stderr
	err = cmd.Run()
	if err == nil {
		return
	}
	s.http.ErrorLog.Printf("%s of %s: %v: %s", service, repo.name, err, bytes.TrimSpace(stderr.Bytes()))
	if out.started {
		panic(http.ErrAbortHandler) // too late for a status: the client must see a broken response
	}
	http.Error(out.w, fmt.Sprintf("%s: %v: %s", service, err, stderr.Bytes()), http.StatusInternalServerError)
}

// response forwards the output of git after a prefix, and records whether anything was sent.
type response struct {
	w       http.ResponseWriter
	prefix  string
	started bool
}

func (r *response) Write(p []byte) (int, error) {
	if !r.started {
		r.started = true
		if _, err := io.WriteString(r.w, r.prefix); err != nil {
			return 0, err
		}
	}
	n, err := r.w.Write(p)
	if err == nil {
		err = http.NewResponseController(r.w).Flush()
	}
	return n, err
}
