// Package search answers queries about the Applications of the fleet over HTTPS.
//
// Every principal replica holds every Application, so each answers from its own memory. Callers are users of the hub's API
// server, or argocd-server on behalf of a user of its UI. A caller sees an Application if the API server allows it to list
// Applications in that namespace and to get the Agent of the Application.
package search
