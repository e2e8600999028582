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

// Rules are what one agent may ask the hub's repo-server for.
type Rules struct {
	// Repository says why the agent may not have manifests of a repository; nil: it may.
	Repository func(address string) error

	// Same reports whether two addresses are those of one repository.
	Same func(a, b string) bool

	// What Secrets that are placed on the agent have, without spaces around it, and it may therefore ask for.
	Proxies       map[string]bool // for access to repositories
	GitHubAPIs    map[string]bool // addresses, of GitHub Enterprise
	GoogleKeys    map[string]bool // of service accounts
	NoProxies     map[string]bool // for access without them
	AzureIdentity bool            // that of the hub's repo-server
	Insecure      bool            // access without making sure whom one is talking to

	// What the hub's own settings have, and agents may therefore ask for.
	BuildOptions   map[string]bool   // of kustomize
	Programs       map[string]bool   // versions of kustomize
	ValuesSchemes  map[string]bool   // of addresses that Helm reads values from
	SourceTypesOff map[string]string // kinds of sources that the hub does not render → the setting that says so

	// Application returns every text in the sources of the hub's Application that is placed on the agent, and called so
	// by Argo CD there; none: there is no such Application.
	Application func(ctx context.Context, name string) (map[string]bool, error)
}

// check says why a request is refused, as a gRPC status.
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
		return status.Error(codes.InvalidArgument, "the request is not what Argo CD's controllers send")
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

// argument says why a text cannot be an argument of a program.
func argument(text []byte) error {
	if bytes.HasPrefix(text, []byte("-")) || bytes.Contains(text, []byte("..")) {
		return fmt.Errorf("%.100q is neither a chart nor a repository", text)
	}
	return nil
}

// repository looks at a Repository or RepoCreds. It returns false if the message is broken.
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

// placed is where what is said of a repository has to be said by the hub, too.
const placed = "a repository that is placed on the agent"

// sameSource checks that content is kept in the cache under the name of the repository that it is from.
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

// address says why an address cannot be used. Only those of the network can: others lead to the repo-server's files.
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

// apart gives the agent a place of its own in the cache of manifests. Their key has a hash of 32 bits, so an agent could
// otherwise put what it likes where another, or the hub, will look. A part of the key that has no meaning to how this
// agent tracks resources is the place. Where there is none, the cache is not used: then answer is what the agent gets.
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
		return nil, nil, status.Errorf(codes.InvalidArgument, "tracking method %q is not known here", tracking)
	}
	if m.changes { // something may have: the next thing the controller does is to ask for manifests
		return nil, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1), nil
	}
	return withBool(request, m.noCache, true), nil, nil
}
