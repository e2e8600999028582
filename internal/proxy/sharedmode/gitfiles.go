package sharedmode

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of a request for files, and of one for manifests.
const (
	filesSubmodules, filesRevision, filesSafely = 2, 3, 5

	manifestRevision, manifestNoCache, manifestSource, manifestSeveral = 2, 3, 10, 22
	manifestAnswerRevision                                             = 4
)

// withoutLinks makes sure that a request for files returns no files outside the repository. By default, the repo-server
// follows symbolic links to its own files. It rejects such links when it generates manifests. So the proxy first requests
// the manifests of an Application without any, which returns only the revision. At that revision, files can be read.
func withoutLinks(ctx context.Context, client grpc.ClientConnInterface, request []byte) ([]byte, error) {
	var check []byte
	each(request, path{1}, func(repository []byte) {
		check = protowire.AppendTag(check, 1, protowire.BytesType)
		check = protowire.AppendBytes(check, repository)
	})
	check = with(check, manifestRevision, last(request, path{filesRevision}))
	check = with(check, manifestSource, string(with(nil, 1, last(request, path{1, repositoryURL}))))
	check = withBool(check, manifestSeveral, true) // one of several sources can have no manifests
	check = withBool(check, manifestNoCache, true) // a cached response can be older than the links
	var answer message
	if err := client.Invoke(ctx, service+"GenerateManifest", message(check), &answer); err != nil {
		return nil, err
	}
	revision := last(answer, path{manifestAnswerRevision})
	if revision == "" {
		return nil, status.Error(codes.Internal, "the hub's repo-server returned no revision")
	}
	request = with(request, filesRevision, revision)
	if !isTrue(request, path{filesSafely}) { // Git lists no files of submodules then, but links can lead there
		request = withBool(request, filesSubmodules, false)
	}
	return request, nil
}
