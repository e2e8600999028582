package sharedmode

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// applicationFields has the positions of the fields of an Application that make the repo-server fetch something from
// anywhere in the hub's network, read files that are not the repository's, or run something. They come from the spoke, so
// what goes beyond the repository counts only if the hub's Application says the same.
type applicationFields struct {
	application path   // what Argo CD calls it
	names       []path // that are filled in where there is a $, in addition to the next two
	filledIn    []path // in the same way, but they are not names
	files       []path // within the repository or else an address; a comma begins another
	folders     []path // the same, and an address may do without a scheme
	parameters  []path // what a file is read into
	plugins     []path
	code        []path // JsonnetVar: a program if its third field is true
}

var ofManifests = applicationFields{
	application: path{5},
	names:       []path{{5}, {8}, {25}},
	filledIn:    []path{{2}, {10, 2}, {10, 4}},
	files:       []path{{10, 7, 1}, {10, 7, 5, 2}, {10, 8, 12, 1}},
	folders:     []path{{10, 8, 13}},
	parameters:  []path{{10, 7, 5, 1}},
	plugins: []path{{10, 11, 1}, {10, 11, 2, 1}, {10, 11, 2, 2}, {10, 11, 3, 1}, {10, 11, 3, 5},
		{10, 11, 3, 3, 1, 1}, {10, 11, 3, 3, 1, 2}, {10, 11, 3, 4, 1}},
	code: []path{{10, 10, 2, 1}, {10, 10, 2, 2}},
}

// specialChars holds what makes a file's name more than a name: addresses have colons, and Helm splits at commas and quotes.
const specialChars = ":,\"\n\r"

// checkNamed says why what an Application says is refused, as a gRPC status.
func (r *Rules) checkNamed(ctx context.Context, n *applicationFields, request []byte) error {
	if n == nil {
		return nil
	}
	for _, p := range n.names {
		if name := last(request, p); strings.ContainsFunc(name, notInNames) {
			return status.Errorf(codes.InvalidArgument, "%.100q is not a name", name)
		}
	}
	suspicious := false // what is filled in may be more than a name, too
	for _, p := range n.filledIn {
		each(request, p, func(v []byte) { suspicious = suspicious || bytes.ContainsAny(v, specialChars) })
	}
	const file, plugin, code = "a file that is not within the repository", "a plugin or its setting", "a program"
	var wants []want // usually none
	look := func(paths []path, what string, is func(v string) bool) {
		for _, p := range paths {
			each(request, p, func(v []byte) {
				if len(v) > 0 && is(string(v)) {
					wants = append(wants, want{what, string(v)})
				}
			})
		}
	}
	outside := func(v string) bool {
		return strings.ContainsAny(v, specialChars) || strings.Contains(v, "$") && (suspicious || strings.Contains(v, "REPO_URL"))
	}
	look(n.files, file, outside)
	look(n.folders, file, func(v string) bool { return outside(v) || beginsWithHost(v) })
	look(n.parameters, file, func(v string) bool { return strings.ContainsAny(v, "=,") })
	look(n.plugins, plugin, func(string) bool { return true })
	for _, p := range n.code {
		each(request, p, func(variable []byte) {
			if isTrue(variable, path{3}) {
				each(variable, path{2}, func(v []byte) { wants = append(wants, want{code, string(v)}) })
			}
		})
	}
	if len(wants) == 0 {
		return nil
	}
	application := last(request, n.application)
	said, err := r.Application(ctx, application)
	if err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	for _, w := range wants {
		if !said[w.text] {
			return status.Errorf(codes.PermissionDenied,
				"%s, %.200q, has to be in the hub's own Application: the hub's repo-server uses nothing else for an agent, and there it is not said of %q", w.what, w.text, application)
		}
	}
	return nil
}

// want is something that the hub's Application has to say.
type want struct{ what, text string }

func notInNames(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' || r == '.')
}

// beginsWithHost reports whether kustomize may take a folder for a repository of the network.
func beginsWithHost(folder string) bool {
	first, _, more := strings.Cut(folder, "/")
	return more && (strings.Contains(strings.Trim(first, "."), ".") || strings.Contains(first, "@"))
}

// checkSourceTypes says why a request is refused that has rendered what the hub does not.
func (r *Rules) checkSourceTypes(p path, request []byte) error {
	if p == nil || len(r.SourceTypesOff) == 0 {
		return nil
	}
	off := map[string]bool{}
	each(request, p, func(entry []byte) { off[last(entry, path{1})] = !isTrue(entry, path{2}) })
	for kind, setting := range r.SourceTypesOff {
		if !off[kind] {
			return fmt.Errorf("%s is false in the hub's argocd-cm: set the same on the agent's cluster", setting)
		}
	}
	return nil
}
