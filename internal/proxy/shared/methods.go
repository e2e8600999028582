package shared

import "google.golang.org/protobuf/encoding/protowire"

const service = "/repository.RepoServerService/"

// The field of Argo CD's Repository, and of its RepoCreds, with the address.
const repositoryURL = 1

// reach lists the fields with which whoever uses a repository decides what else the repo-server connects to, or whom it
// presents itself as.
type reach struct {
	proxy, githubAPI protowire.Number // addresses
	googleKey        protowire.Number // a file that says where tokens come from
	azureIdentity    protowire.Number // true: the repo-server's own identity is used
}

var (
	ofRepository  = reach{proxy: 19, githubAPI: 18, googleKey: 21, azureIdentity: 24}
	ofCredentials = reach{proxy: 19, githubAPI: 10, googleKey: 13, azureIdentity: 24}
)

// method tells where in its request what is to be checked is. Zero and nil: there is no such field.
type method struct {
	repositories []path // beside that in field 1, which all have
	credentials  []path // RepoCreds
	source       path   // the address in the Application's source, which has to be that of the repository
	refused      []path // must not be there

	buildOptions, programs, schemes []path // options, and programs, of kustomize; schemes of value files

	// Parts of the key under which manifests are kept.
	label, tracking, installation, noCache protowire.Number

	changes bool // the answer says whether anything has changed
}

// methods lists what Argo CD's application controller and applicationset-controller call, and what is as harmless. What
// is absent is refused: GenerateManifestWithFiles, for one, would let a spoke bring content of its own.
var methods = map[string]method{
	service + "GenerateManifest": {
		repositories: []path{{11}, {23, 2, 1}},
		credentials:  []path{{17}},
		source:       path{10, 1},
		refused:      []path{{12}, {13, 2}},
		buildOptions: []path{{13, 1}, {13, 3, 3}}, programs: []path{{13, 3, 2}}, schemes: []path{{21, 1}},
		label: 4, tracking: 19, installation: 27, noCache: 3,
	},
	service + "UpdateRevisionForPaths": {
		repositories: []path{{7, 2, 1}},
		source:       path{5, 1},
		label:        2, tracking: 6, installation: 15,
		changes: true,
	},
	service + "ResolveRevision":         {},
	service + "GetGitFiles":             {},
	service + "GetGitDirectories":       {},
	service + "GetRevisionMetadata":     {},
	service + "GetRevisionChartDetails": {},
	service + "GetOCIMetadata":          {},
}
