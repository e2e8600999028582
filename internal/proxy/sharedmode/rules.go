package sharedmode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Rules describe what one agent may request from the hub's repo-server.
type Rules struct {
	// Repository returns an error if the agent may not have manifests of a repository.
	Repository func(address string) error

	// Same reports whether two addresses are of the same repository.
	Same func(a, b string) bool

	// Values in Secrets that are placed on the agent, without surrounding spaces.
	Proxies       map[string]bool
	NoProxies     map[string]bool
	GitHubAPIs    map[string]bool // addresses of GitHub Enterprise
	GoogleKeys    map[string]bool // of service accounts
	AzureIdentity bool            // the identity of the hub's repo-server
	Insecure      bool            // access without verification of the server

	// Values in the hub's own settings.
	BuildOptions   map[string]bool   // of kustomize
	Programs       map[string]bool   // versions of kustomize
	ValuesSchemes  map[string]bool   // of addresses from which Helm reads values
	SourceTypesOff map[string]string // source types that the hub does not render → the setting

	// Application returns every string in the sources of the hub's Application that is placed on the agent. The name is
	// Argo CD's on the spoke. Without such an Application, it returns none.
	Application func(ctx context.Context, name string) (map[string]bool, error)
}

// check returns a gRPC status if a request is denied.
func (r *Rules) check(ctx context.Context, m method, request []byte) error {
	addresses := 0
	var why error
	deny := func(err error) {
		if why == nil && err != nil {
			why = status.Error(codes.PermissionDenied, err.Error())
		}
	}
	whole := each(request, path{1}, func(repository []byte) {
		each(repository, path{repositoryURL}, func(address []byte) { addresses++; deny(r.address(string(address))) })
	})
	for _, p := range append([]path{{1}}, m.repositories...) {
		whole = whole && r.repository(request, p, ofRepository, deny)
	}
	for _, p := range m.credentials {
		whole = whole && r.repository(request, p, ofCredentials, deny)
	}
	for _, p := range m.refused {
		whole = whole && each(request, p, func(v []byte) {
			if len(v) > 0 {
				deny(fmt.Errorf("field %d of the request is not for agents", p[0]))
			}
		})
	}
	for _, p := range m.arguments {
		whole = whole && each(request, p, func(v []byte) { deny(argument(v)) })
	}
	deny(r.checkSourceTypes(m.sourceTypes, request))
	setting := "the hub's argocd-cm"
	for _, s := range []struct {
		paths []path
		known map[string]bool
		what  string
	}{
		{m.buildOptions, r.BuildOptions, "kustomize.buildOptions"},
		{m.programs, r.Programs, "kustomize.version"},
		{m.schemes, r.ValuesSchemes, "helm.valuesFileSchemes"},
	} {
		for _, p := range s.paths {
			whole = whole && each(request, p, func(v []byte) { deny(r.known(s.known, s.what, v, setting)) })
		}
	}
	switch {
	case !whole:
		return status.Error(codes.InvalidArgument, "the request is not valid")
	case why != nil:
		return why
	case addresses == 0:
		return status.Error(codes.InvalidArgument, "the request names no repository")
	}
	if err := r.sameSource(m, request); err != nil {
		return err
	}
	return r.checkNamed(ctx, m.named, request)
}

// argument returns an error if a text cannot be an argument of a program.
func argument(text []byte) error {
	if bytes.HasPrefix(text, []byte("-")) || bytes.Contains(text, []byte("..")) {
		return fmt.Errorf("%.100q is neither a chart nor a repository", text)
	}
	return nil
}

// repository checks a Repository or RepoCreds. It returns false if the message is invalid.
func (r *Rules) repository(request []byte, p path, fields connectFields, deny func(error)) bool {
	at := func(number protowire.Number, f func(v []byte)) bool {
		return each(request, append(slices.Clip(p), number), f)
	}
	truth := func(numbers []protowire.Number, allowed bool, what string) bool {
		for _, number := range numbers {
			if !at(number, func(v []byte) {
				if yes, _ := protowire.ConsumeVarint(v); yes != 0 && !allowed {
					deny(errors.New(what + " is not a setting of " + placed))
				}
			}) {
				return false
			}
		}
		return true
	}
	return at(repositoryURL, func(v []byte) { deny(r.address(string(v))) }) &&
		(fields.githubAPI != ofRepository.githubAPI || at(repositoryName, func(v []byte) { deny(argument(v)) })) &&
		at(fields.noProxy, func(v []byte) { deny(r.known(r.NoProxies, "noProxy", bytes.TrimSpace(v), placed)) }) &&
		at(fields.proxy, func(v []byte) { deny(r.known(r.Proxies, "proxy", bytes.TrimSpace(v), placed)) }) &&
		at(fields.githubAPI, func(v []byte) { deny(r.known(r.GitHubAPIs, "githubAppEnterpriseBaseUrl", bytes.TrimSpace(v), placed)) }) &&
		at(fields.googleKey, func(v []byte) {
			if key := bytes.TrimSpace(v); len(key) > 0 && !r.GoogleKeys[string(key)] { // not quoted: it may be a secret
				deny(errors.New("this gcpServiceAccountKey is not a setting of " + placed))
			}
		}) &&
		truth([]protowire.Number{fields.azureIdentity}, r.AzureIdentity, "useAzureWorkloadIdentity") &&
		truth(fields.insecure, r.Insecure, "access that is not verified (insecure)")
}

// placed is where the hub must have the same value.
const placed = "a repository that is placed on the agent"

// sameSource checks that content is cached under the address of its repository.
func (r *Rules) sameSource(m method, request []byte) (err error) {
	if m.source == nil {
		return nil
	}
	err = status.Error(codes.InvalidArgument, "the request names no source")
	each(request, m.source, func([]byte) { err = nil })
	each(request, path{1, repositoryURL}, func(repository []byte) {
		each(request, m.source, func(source []byte) {
			if !r.Same(string(repository), string(source)) {
				err = status.Errorf(codes.PermissionDenied, "the source %q is not of the repository %q", source, repository)
			}
		})
	})
	return err
}

// address returns an error if an address cannot be used. Only network addresses can. Others lead to the repo-server's files.
func (r *Rules) address(address string) error {
	scheme, _, found := strings.Cut(strings.ToLower(strings.TrimSpace(address)), "://")
	switch {
	case address == "" || strings.ContainsAny(address, "\x00\n\r") || strings.HasPrefix(strings.TrimSpace(address), "-"):
		return fmt.Errorf("repository %q has no address", address)
	case found && scheme != "https" && scheme != "http" && scheme != "ssh" && scheme != "oci":
		return fmt.Errorf("repository %q: agents cannot use addresses of %q", address, scheme)
	case !found && (strings.Contains(address, "::") || strings.HasPrefix(strings.TrimSpace(address), "/") || strings.HasPrefix(strings.TrimSpace(address), ".")):
		return fmt.Errorf("repository %q: agents cannot use this kind of address", address)
	}
	return r.Repository(address)
}

func (r *Rules) known(known map[string]bool, what string, value []byte, where string) error {
	if len(value) == 0 || known[string(value)] {
		return nil
	}
	return fmt.Errorf("%s %q is not a setting of %s", what, value, where)
}

// apart gives the agent its own key space in the cache of manifests. The key has a hash of 32 bits, so an agent could
// otherwise store content under the key of another agent or the hub. The agent's name is added to a part of the key that
// its tracking method does not use. If there is none, the cache is not used, and answer is the response.
func apart(agent string, m method, request []byte) (changed, answer []byte, err error) {
	if m.label == 0 {
		return request, nil, nil
	}
	label := last(request, path{m.label})
	switch tracking := last(request, path{m.tracking}); {
	case (tracking == "" || tracking == "annotation") && label != "":
		return with(request, m.label, label+"@"+agent), nil, nil
	case tracking == "label":
		return with(request, m.installation, last(request, path{m.installation})+"@"+agent), nil, nil
	case tracking == "" || tracking == "annotation" || tracking == "annotation+label":
	default:
		return nil, nil, status.Errorf(codes.InvalidArgument, "tracking method %q is not known", tracking)
	}
	if m.changes { // something can have changed. The controller requests the manifests next.
		return nil, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1), nil
	}
	return withBool(request, m.noCache, true), nil, nil
}
