// A standby pool of sandboxes, the network that shuts them in, and the gateway that is their one way out:
//
//     az deployment group create --resource-group sandboxes --template-file deploy/azure/main.bicep --parameters sandboxImage=… gatewayImage=… …
//
// Nothing in here holds a secret but the two marked `secure`. deploy/azure/README.md says what was never run.

@description('Region. It must have container groups with virtual networks, and standby pools.')
param location string = resourceGroup().location

@description('Image of deploy/azure/sandbox.')
param sandboxImage string

@description('Image of deploy/image.')
param gatewayImage string

@description('sallyport.yaml of the gateway, with listen.proxy 0.0.0.0:3128 and the issuer of the host.')
@secure()
param gatewayConfig string

@description('Registry of both images, and an identity that may pull from it; empty for images that anybody may pull.')
param registryServer string = ''
param registryIdentity string = ''

@description('Range of the hosts that make sandboxes: nobody else reaches a worker.')
param hostRange string = '10.77.2.0/24'

@description('How many sandboxes wait to be claimed.')
@minValue(1)
@maxValue(2000)
param readyCapacity int = 3

@description('Of one sandbox.')
param cpu int = 1
param memoryInGB string = '1.5'

@description('Object id of the identity of the hosts; it gets a role that makes, reads and deletes container groups of this resource group, and no more.')
param hostPrincipalId string

var sandboxRange = '10.77.0.0/24'
var gatewayRange = '10.77.1.0/28'
var container = 'sandbox'
var workerPort = 2024
var gatewayPort = 3128

// What a sandbox may reach: one port of the gateway. What may reach it: the hosts. Neither other sandboxes, nor the rest of the network, nor the internet,
// nor the platform's own services.
resource sandboxRules 'Microsoft.Network/networkSecurityGroups@2024-05-01' = {
  name: 'sallyport-sandboxes'
  location: location
  properties: {
    securityRules: [
      {
        name: 'worker-from-hosts'
        properties: {
          priority: 100
          direction: 'Inbound'
          access: 'Allow'
          protocol: 'Tcp'
          sourceAddressPrefix: hostRange
          sourcePortRange: '*'
          destinationAddressPrefix: sandboxRange
          destinationPortRange: string(workerPort)
        }
      }
      {
        name: 'nothing-else-in'
        properties: {
          priority: 4096
          direction: 'Inbound'
          access: 'Deny'
          protocol: '*'
          sourceAddressPrefix: '*'
          sourcePortRange: '*'
          destinationAddressPrefix: '*'
          destinationPortRange: '*'
        }
      }
      {
        name: 'gateway'
        properties: {
          priority: 100
          direction: 'Outbound'
          access: 'Allow'
          protocol: 'Tcp'
          sourceAddressPrefix: sandboxRange
          sourcePortRange: '*'
          destinationAddressPrefix: gatewayRange
          destinationPortRange: string(gatewayPort)
        }
      }
      {
        name: 'nothing-else-out'
        properties: {
          priority: 4096
          direction: 'Outbound'
          access: 'Deny'
          protocol: '*'
          sourceAddressPrefix: '*'
          sourcePortRange: '*'
          destinationAddressPrefix: '*'
          destinationPortRange: '*'
        }
      }
    ]
  }
}

// No way on, should the rules above be changed: what has no route goes nowhere.
resource sandboxRoutes 'Microsoft.Network/routeTables@2024-05-01' = {
  name: 'sallyport-sandboxes'
  location: location
  properties: {
    disableBgpRoutePropagation: true
    routes: [
      {
        name: 'nowhere'
        properties: {
          addressPrefix: '0.0.0.0/0'
          nextHopType: 'None'
        }
      }
    ]
  }
}

resource network 'Microsoft.Network/virtualNetworks@2024-05-01' = {
  name: 'sallyport'
  location: location
  properties: {
    addressSpace: {
      addressPrefixes: [
        '10.77.0.0/16'
      ]
    }
    subnets: [
      {
        name: 'sandboxes'
        properties: {
          addressPrefix: sandboxRange
          defaultOutboundAccess: false
          networkSecurityGroup: {
            id: sandboxRules.id
          }
          routeTable: {
            id: sandboxRoutes.id
          }
          delegations: [
            {
              name: 'container-groups'
              properties: {
                serviceName: 'Microsoft.ContainerInstance/containerGroups'
              }
            }
          ]
        }
      }
      {
        name: 'gateway'
        properties: {
          addressPrefix: gatewayRange
          delegations: [
            {
              name: 'container-groups'
              properties: {
                serviceName: 'Microsoft.ContainerInstance/containerGroups'
              }
            }
          ]
        }
      }
    ]
  }
}

resource profile 'Microsoft.ContainerInstance/containerGroupProfiles@2024-05-01-preview' = {
  name: 'sallyport-sandbox'
  location: location
  properties: {
    osType: 'Linux'
    sku: 'Standard'
    // One that ended must not come back: it would take settings that were used.
    restartPolicy: 'Never'
    ipAddress: {
      type: 'Private'
      ports: [
        {
          protocol: 'TCP'
          port: workerPort
        }
      ]
    }
    imageRegistryCredentials: registryServer == '' ? [] : [
      {
        server: registryServer
        identity: registryIdentity
      }
    ]
    containers: [
      {
        name: container
        properties: {
          image: sandboxImage
          ports: [
            {
              protocol: 'TCP'
              port: workerPort
            }
          ]
          resources: {
            requests: {
              cpu: cpu
              memoryInGB: json(memoryInGB)
            }
          }
        }
      }
    ]
  }
}

resource pool 'Microsoft.StandbyPool/standbyContainerGroupPools@2025-03-01' = {
  name: 'sallyport'
  location: location
  properties: {
    elasticityProfile: {
      maxReadyCapacity: readyCapacity
      refillPolicy: 'always'
    }
    containerGroupProperties: {
      containerGroupProfile: {
        id: profile.id
        revision: 1
      }
      subnetIds: [
        {
          id: '${network.id}/subnets/sandboxes'
        }
      ]
    }
  }
}

resource gateway 'Microsoft.ContainerInstance/containerGroups@2024-05-01-preview' = {
  name: 'sallyport-gateway'
  location: location
  properties: {
    osType: 'Linux'
    sku: 'Standard'
    restartPolicy: 'Always'
    subnetIds: [
      {
        id: '${network.id}/subnets/gateway'
      }
    ]
    ipAddress: {
      type: 'Private'
      ports: [
        {
          protocol: 'TCP'
          port: gatewayPort
        }
      ]
    }
    imageRegistryCredentials: registryServer == '' ? [] : [
      {
        server: registryServer
        identity: registryIdentity
      }
    ]
    volumes: [
      {
        name: 'config'
        secret: {
          'sallyport.yaml': base64(gatewayConfig)
        }
      }
    ]
    containers: [
      {
        name: 'gateway'
        properties: {
          image: gatewayImage
          ports: [
            {
              protocol: 'TCP'
              port: gatewayPort
            }
          ]
          resources: {
            requests: {
              cpu: 1
              memoryInGB: 1
            }
          }
          volumeMounts: [
            {
              name: 'config'
              mountPath: '/etc/sallyport'
              readOnly: true
            }
          ]
        }
      }
    ]
  }
}

resource hostRole 'Microsoft.Authorization/roleDefinitions@2022-04-01' = {
  name: guid(resourceGroup().id, 'sallyport-host')
  properties: {
    roleName: 'Sallyport host (${resourceGroup().name})'
    description: 'Makes, reads and deletes the container groups of sandboxes.'
    type: 'CustomRole'
    permissions: [
      {
        actions: [
          'Microsoft.ContainerInstance/containerGroups/read'
          'Microsoft.ContainerInstance/containerGroups/write'
          'Microsoft.ContainerInstance/containerGroups/delete'
          'Microsoft.ContainerInstance/containerGroupProfiles/read'
          'Microsoft.StandbyPool/standbyContainerGroupPools/read'
          'Microsoft.StandbyPool/standbyContainerGroupPools/runtimeViews/read'
          'Microsoft.Network/virtualNetworks/subnets/read'
          'Microsoft.Network/virtualNetworks/subnets/join/action'
        ]
      }
    ]
    assignableScopes: [
      resourceGroup().id
    ]
  }
}

resource hostAssignment 'Microsoft.Authorization/roleAssignments@2022-04-01' = {
  name: guid(resourceGroup().id, hostPrincipalId, 'sallyport-host')
  properties: {
    roleDefinitionId: hostRole.id
    principalId: hostPrincipalId
    principalType: 'ServicePrincipal'
  }
}

output poolName string = pool.name
output profileName string = profile.name
output containerName string = container
output gatewayUrl string = 'http://${gateway.properties.ipAddress.ip}:${gatewayPort}'
