// Package upgrade lets an agent run another version of itself. If the new version is not in sync with the hub in time, it
// restores the old one.
//
//   - Whose object. The Deployment belongs to users of the workload cluster. A flag of the agent names it, and the Role of
//     the agent permits changes of this one only. Of it, only the image of container "agent" and one annotation are changed.
//   - How we know. AgentPolicies allow the image. If another tool manages the Deployment (Helm, Argo CD, Flux, an operator),
//     nothing is changed: that tool would restore the old image.
//   - Stale views. The state of the upgrade is an annotation of the Deployment (record). It is written together with the
//     image, and only if the Deployment is unchanged since it was read. So either the new agent confirms or the Job restores,
//     never both, and a suspended process changes nothing.
//
// The order: the agent writes phase Preparing and creates the Job. The Job, with the image that runs now, writes phase
// JobRunning: it has proved that it can start and write. Then the agent changes the image. The new agent writes Succeeded
// when both sides have proved by their digests that they are in sync. Otherwise the Job restores the image, also if the hub
// cannot be reached.
package upgrade
